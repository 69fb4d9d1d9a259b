"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "d3s": Proof(
        ["credit/rows_left_out", "credit/tokens_left_out"],
        {"credit.rows=1": "credit", "credit.tokens=1": "credit"},
        BRIEFER,
    ),
}
