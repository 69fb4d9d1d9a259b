"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "ariadne": Proof(
        ["reward/part/maze-steps/walked", LEARNS],
        {"stages.rl.curriculum.only=[1/0, 2/0, 2/1]": "draw", "reward=[task]": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=[*stages(60, 1, tasks=1), "stages.start.tasks_per_step=16", "checkpoint_every=100"],
    ),
}
