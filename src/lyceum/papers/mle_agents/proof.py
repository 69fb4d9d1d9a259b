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
        [
            *stages(1, 2, tasks=1),
            "model={beside}/model",
            # Half of the workers for two thirds of the samples: programs, each of which is run.
            *("stages.rl.rollout.samples=16", "stages.rl.guidance.0.workers=2"),
        ],
        beside=short_start(40, 20),
    ),
}
