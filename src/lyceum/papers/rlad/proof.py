"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "rlad": Proof(
        [
            "guidance/abstractions/abstractions/told_apart",
            "guidance/abstractions/accuracy/mean",
            "guidance/abstractions/abstractions/leaked",
        ],
        {
            "stages.rl.guidance.0.abstractions=1": "generation",
            "stages.rl.guidance.0.ask='{problem}~'": "generation",
        },
        [*stages(1, 2), "model={beside}/model"],
        beside=[
            "stages.start.steps=40",
            "stages.start.tasks_per_step=8",
            "stages.rl.steps=1",
            "stages.rl.tasks_per_step=1",
            "checkpoint_every=100",
        ],
    ),
}
