"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "promed": Proof(
        [
            "reward/part/shapley-gain/gain",
            "credit/turns_with_gain",
        ],
        {"reward.1.weight=0": "grades", "reward.1.scale=2": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=[
            *stages(12, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
