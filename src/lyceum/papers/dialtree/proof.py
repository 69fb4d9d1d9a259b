"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "dialtree": Proof(
        [
            "rollout/dialogue-tree/malformed",
            "rollout/dialogue-tree/strategies",
        ],
        {
            "stages.rl.rollout.characters=null": "generation",
            "stages.rl.rollout.branch=2": "generation",
        },
        [*stages(1, 2), "model={beside}/model"],
        beside=[
            *stages(8, 1, tasks=1),
            "stages.start.tasks_per_step=24",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
