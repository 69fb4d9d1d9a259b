"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "reasonrank": Proof(
        ["reward/part/ranking-views/ndcg", "reward/part/ranking-views/rbo", LEARNS],
        {"reward=[task]": "grades", "reward.0.overlap=0": "grades", "reward.0.top=1": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=[
            "stages.start.steps=100",
            "stages.start.tasks_per_step=8",
            "stages.rl.steps=1",
            "stages.rl.tasks_per_step=1",
            "checkpoint_every=200",
        ],
    ),
}
