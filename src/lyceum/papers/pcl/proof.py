"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "pcl": Proof(
        ["curriculum/value/picked"],
        {"curriculum=uniform": "draw"},
        ["steps=3", "tasks_per_step=4", "tasks.levels=[1, 8]"],
    ),
}
