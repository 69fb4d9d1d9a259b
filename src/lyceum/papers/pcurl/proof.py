"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "pcurl": Proof(
        ["curriculum/weight/mean < 1", "reward/part/format", "reward/part/dynamic-length/acted > 0.1"],
        {"stages.hard.reward=null": "grades", "stages.easy.curriculum=uniform": "forest"},
        [*stages(1, 1, 1, 2), "model={beside}/model"],
        beside=[*stages(60, 1, 1, 1, tasks=1), "stages.start.tasks_per_step=24", "checkpoint_every=100"],
    ),
}
