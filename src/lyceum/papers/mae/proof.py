"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "mae": Proof(
        [
            "guidance/proposer-solver-judge/questions/answered",
            "guidance/proposer-solver-judge/judgements/score",
        ],
        {
            "stages.rl.guidance.0.least_quality=0": "generation",
            "stages.rl.guidance.0.judgements=1": "generation",
            "stages.rl.credit=group": "credit",
        },
        [*stages(1, 2, tasks=2), "model={beside}/model"],
        beside=[
            *stages(28, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
