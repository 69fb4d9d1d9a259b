"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "pilotrl": Proof(
        [
            "guidance/global-plan/plans/told_apart",
            "guidance/global-plan/accuracy/mean",
            "guidance/global-plan/adherence/mean",
            "guidance/global-plan/adherence/partial",
        ],
        {
            "stages.plan.guidance.0.phase=both": "generation",
            "stages.both.guidance.0.plans=1": "generation",
        },
        [*stages(1, 1, 1, 1), "model={beside}/model"],
        beside=[
            *stages(20, 1, 1, 1, tasks=1),
            "stages.start.tasks_per_step=12",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
