"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "ssp": Proof(
        [
            "guidance/search-self-play/questions/answered",
            "guidance/search-self-play/searches/proposer",
            "guidance/search-self-play/rejected/documents",
        ],
        {"stages.rl.guidance.0.least_right=0": "generation", "stages.rl.guidance.0.questions=2": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(18, 10, lr=1e-3),
    ),
}
