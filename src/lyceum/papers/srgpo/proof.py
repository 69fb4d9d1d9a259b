"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof, stages

PROOFS = {
    "srgpo": Proof(
        ["credit/tokens_with_step_advantage"], {"credit.step_weight=0": "credit", "credit=group": "forest"}, BRIEFER
    ),
    "srgpo-pictures": Proof(
        ["credit/tokens_with_step_advantage", "rollout/turns/calls"],
        {
            "stages.rl.credit.step_weight=0": "credit",
            "stages.rl.credit=group": "forest",
            "tasks.marks=[]": "generation",
        },
        [*stages(1, 2), "model={beside}/model"],
        beside=[
            *stages(60, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=5",
            "checkpoint_every=100",
        ],
    ),
}
