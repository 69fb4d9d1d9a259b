"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "spiral": Proof(
        [
            "guidance/self-play/games/played",
            "role/first/trajectories",
            "role/second/trajectories",
            "credit/baseline/apart",
        ],
        {
            "stages.1.credit=reinforce": "credit",
            ("stages.1.guidance=[]", "stages.1.credit=group"): "generation",  # against the players of the evaluation
        },
        [*stages(1, 3, tasks=2), "model={beside}/model"],
        beside=short_start(14, 8, lr=1e-3),
    ),
}
