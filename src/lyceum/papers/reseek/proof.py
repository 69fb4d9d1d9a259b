"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "reseek": Proof(
        ["rollout/turns/dropped_wrong", "rollout/turns/kept_wrong", "reward/part/environment"],
        {"stages.rl.rollout.environment.wrong=0": "generation", "reward=[{kind: task, steps: false}]": "grades"},
        [*stages(1, 2, tasks=2), "model={beside}/model"],
        beside=short_start(16, 12),
    ),
}
