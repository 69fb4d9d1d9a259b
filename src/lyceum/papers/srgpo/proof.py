"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "srgpo": Proof(
        ["credit/tokens_with_step_advantage"], {"credit.step_weight=0": "credit", "credit=group": "forest"}, BRIEFER
    ),
}
