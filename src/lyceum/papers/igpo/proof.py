"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "igpo": Proof(
        ["credit/turns_with_gain", "reward/part/answer-gain/after"],
        {"reward.1.weight=0": "grades", "credit.normalise=separate": "credit", "credit.gamma=0": "credit"},
        BRIEFER,
    ),
}
