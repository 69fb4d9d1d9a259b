"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "clpo": Proof(
        [
            "guidance/restructure/groups/simplify",
            "guidance/restructure/simplify/after",
        ],
        {"stages.rl.guidance=[]": "generation", "stages.rl.guidance.0.rewritings=1": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        beside=[
            *stages(24, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
