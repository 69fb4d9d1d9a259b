"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "spell": Proof(
        [
            "guidance/questioner-responder-verifier/memory/read",
            "guidance/questioner-responder-verifier/votes/agreement",
        ],
        {
            "stages.rl.guidance.0.memory=0": "generation",
            "stages.rl.guidance.0.votes=1": "generation",
            "stages.rl.credit=group": "credit",
        },
        [*stages(1, 2, tasks=2), "model={beside}/model", "tasks.size=2"],
        beside=short_start(40, 12),
    ),
}
