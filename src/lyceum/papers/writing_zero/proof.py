"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "writing-zero": Proof(
        ["reward/brpo/pairs/compared", "reward/part/brpo/reference", LEARNS],
        {"stages.1.reward.1.orders=both": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(12, 10, lr=1e-3),
    ),
}
