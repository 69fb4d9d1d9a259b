"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "clpo": Proof(
        [
            "guidance/restructure/groups/simplify",
            "guidance/restructure/simplify/after",
        ],
        {"stages.rl.guidance=[]": "generation", "stages.rl.guidance.0.rewritings=1": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(14, 10, lr=1e-3),
    ),
}
