"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "empg": Proof(
        ["credit/steps_amplified", "credit/steps_with_bonus"],
        {"credit.clarity_weight=0": "credit", "credit.certainty_rate=0": "credit"},
        BRIEFER,
    ),
}
