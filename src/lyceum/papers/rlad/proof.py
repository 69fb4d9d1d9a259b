"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

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
        beside=short_start(24, 6, lr=1e-3),
    ),
}
