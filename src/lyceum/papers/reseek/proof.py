"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "reseek": Proof(
        ["rollout/turns/dropped_wrong", "rollout/turns/kept_wrong", "reward/part/environment"],
        {"stages.rl.rollout.environment.wrong=0": "generation", "reward=[{kind: task, steps: false}]": "grades"},
        [*stages(1, 2, tasks=2), "model={beside}/model"],
        beside=[
            *stages(16, 1, tasks=1),
            "stages.start.tasks_per_step=12",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
