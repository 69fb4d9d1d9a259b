"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "pairwise-rl": Proof(
        [*(f"reward/part/win-probability{bound}" for bound in ("", " < 1", "/won", "/won < 1")), LEARNS],
        {"stages.1.reward.1.orders=random": "grades", "stages.1.reward=[task]": "grades"},
        [*stages(1, 2, tasks=2), "stages.1.rollout.samples=4", "tasks.levels=[4]"],
    ),
}
