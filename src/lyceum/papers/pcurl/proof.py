"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

ACTED = ["curriculum/weight/mean < 1", "reward/part/format", "reward/part/dynamic-length/acted > 0.1"]
OFF: dict[str | tuple[str, ...], str] = {
    "stages.hard.reward=null": "grades",
    "stages.easy.curriculum=uniform": "forest",
}
BRIEF = [*stages(1, 1, 1, 2), "model={beside}/model"]

PROOFS = {
    "pcurl": Proof(
        ACTED,
        OFF,
        BRIEF,
        beside=short_start(60, 24, then=3, warmup=None),
    ),
    "pcurl-pictures": Proof(
        ACTED,
        OFF,
        BRIEF,
        beside=short_start(60, 16, then=3, warmup=None),
    ),
}
