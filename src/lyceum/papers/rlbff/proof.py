"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "rlbff": Proof(
        ["reward/part/principles/satisfied", "reward/part/principles/satisfied < 1", LEARNS],
        {"stages.1.reward.1.principles=[sound]": "grades", "stages.1.reward=[task]": "grades"},
        stages(2, 2),
    ),
}
