"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

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
        beside=[*stages(60, 1, 1, 1, tasks=1), "stages.start.tasks_per_step=24", "checkpoint_every=100"],
    ),
    "pcurl-pictures": Proof(
        ACTED,
        OFF,
        BRIEF,
        beside=[*stages(60, 1, 1, 1, tasks=1), "stages.start.tasks_per_step=16", "checkpoint_every=100"],
    ),
}
