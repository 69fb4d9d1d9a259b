"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

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
        beside=short_start(18, 10, lr=2e-3),
    ),
}
