"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "gui-g1": Proof(
        ["curriculum/weight/largest > 1", "reward/part/task#2", "reward/part/task#3", LEARNS],
        {"stages.rl.curriculum=uniform": "forest", "reward=[task]": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=[*stages(60, 1, tasks=1), "stages.start.tasks_per_step=16", "checkpoint_every=100"],
    ),
}
