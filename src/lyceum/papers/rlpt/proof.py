"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof

PROOFS = {
    "rlpt": Proof(
        [LEARNS, "reward/part/text-overlap"],
        {"tasks.middle_share=0": "generation", "reward.0.measure=rouge-l": "grades"},
        ["steps=2", "tasks_per_step=2"],
    ),
}
