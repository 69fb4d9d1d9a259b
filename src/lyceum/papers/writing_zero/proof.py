"""What shows that the mechanism acts."""

from lyceum.recipe.proof import JUDGES, LEARNS, Proof

PROOFS = {
    "writing-zero": Proof(
        ["reward/brpo/pairs/compared", "reward/part/brpo/reference", LEARNS],
        {"stages.1.reward.1.orders=both": "generation"},
        JUDGES,
    ),
}
