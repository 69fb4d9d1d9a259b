"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "grpo-care": Proof(
        ["reward/part/consistency-bonus", "reward/consistency-bonus/groups/parted", "average/updates"],
        {"stages.0.reward.1.weight=0": "grades", ("stages.0.reward=[task]", "stages.0.average=null"): "grades"},
        ["steps=2", "tasks_per_step=8"],
    ),
}
