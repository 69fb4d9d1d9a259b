"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "promed": Proof(
        [
            "reward/part/shapley-gain/gain",
            "credit/turns_with_gain",
        ],
        {"reward.1.weight=0": "grades", "reward.1.scale=2": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(8, 12),
    ),
}
