"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "mle-agents": Proof(
        [
            "credit/durations/heaviest > 1",
            "reward/part/progress-marks/partial",
            "guidance/clocked-workers/samples/not_begun",
        ],
        {
            "stages.rl.credit=group": "credit",
            "reward.each=0": "grades",
            "stages.rl.guidance=[]": "generation",
        },
        [*stages(1, 2, tasks=2), "model={beside}/model"],
        beside=short_start(40, 32),
    ),
}
