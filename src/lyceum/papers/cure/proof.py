"""What shows that the mechanism acts."""

from lyceum.recipe.proof import FLAT, WITHOUT_PENALTY, Proof, stages

PROOFS = {
    "cure": Proof(
        ["rollout/critical-tokens/resampled", "groups_dropped", "reward/part/overlong < 0"],
        {f"stages.0.rollout={FLAT}": "draw", **WITHOUT_PENALTY},
        stages(2, 1),
    ),
}
