"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "implicit-prm": Proof(
        ["value/updates", "reward/part/model/process"],
        {"stages.policy.credit.process_coefficient=0": "credit", "stages.implicit.value.lr=1e-30": "grades"},
        ["stages.0.steps=1", "stages.0.tasks_per_step=8", "stages.1.steps=2", "stages.1.tasks_per_step=4"],
    ),
}
