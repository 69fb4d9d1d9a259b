"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "goal-conditioned": Proof(
        ["value/updates", "value/cosine/ahead", "reward/part/model/outcome", "reward/part/model/process"],
        {"stages.preferences.value.contrast=0": "grades", "stages.policy.reward=[task]": "grades"},
        ["stages.0.steps=1", "stages.0.tasks_per_step=4", "stages.1.steps=2", "stages.1.tasks_per_step=2"],
    ),
}
