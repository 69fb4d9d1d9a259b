"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "reasonrank": Proof(
        ["reward/part/ranking-views/ndcg", "reward/part/ranking-views/rbo", LEARNS],
        {"reward=[task]": "grades", "reward.0.overlap=0": "grades", "reward.0.top=1": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(100, 8, warmup=None),
    ),
}
