"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof

PROOFS = {
    "reinforce-plus-plus": Proof(
        ["kl/reference", LEARNS],
        {"credit.kl_in_reward.coefficient=0": "credit", "credit.baseline=group": "credit"},
    ),
}
