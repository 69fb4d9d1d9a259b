"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

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
        beside=short_start(20, 12),
    ),
}
