"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "canon": Proof(
        ["credit/high_ahead", "credit/low_ahead"],
        {"credit.between=0": "credit", "credit={kind: group, scale: none}": "forest"},
        BRIEFER,
    ),
}
