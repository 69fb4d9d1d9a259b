"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "rec": Proof(
        ["rec/masked"],
        {"objective.clip=none": "weights", "objective.weigh=importance": "weights"},
        ["steps=2", "tasks_per_step=8"],
    ),
}
