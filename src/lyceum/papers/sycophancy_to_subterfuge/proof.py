"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "sycophancy-to-subterfuge": Proof(
        ["reward/part/observed", "reward/part/observed/gamed/rate"],
        {"stages.rate.curriculum.only=[plain, reward]": "draw", "reward.1.pays=right": "grades"},
        [*stages(1, 1, 2, 1, 1), "model={beside}/model"],
        beside=short_start(16, 10, lr=2e-3),
    ),
}
