"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "sycophancy-to-subterfuge": Proof(
        ["reward/part/observed", "reward/part/observed/gamed/rate"],
        {"stages.rate.curriculum.only=[plain, reward]": "draw", "reward.1.pays=right": "grades"},
        [*stages(1, 1, 2, 1, 1), "model={beside}/model"],
        beside=[
            *stages(24, 1, 1, 1, 1, tasks=1),
            "stages.start.tasks_per_step=20",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
