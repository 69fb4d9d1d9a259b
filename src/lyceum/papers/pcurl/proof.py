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
        beside=short_start(30, 16, warmup=2, lr=2e-3),
    ),
    "pcurl-pictures": Proof(
        ACTED,
        OFF,
        BRIEF,
        beside=short_start(24, 12, warmup=4, lr=4e-3),
    ),
}
