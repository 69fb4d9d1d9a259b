"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "dialtree": Proof(
        [
            "rollout/dialogue-tree/malformed",
            "rollout/dialogue-tree/strategies",
        ],
        {
            "stages.rl.rollout.characters=null": "generation",
            "stages.rl.rollout.branch=2": "generation",
        },
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(8, 24),
    ),
}
