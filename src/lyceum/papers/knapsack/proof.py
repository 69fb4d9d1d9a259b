"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "knapsack": Proof(
        ["curriculum/most-samples/task > 8"],
        {"curriculum=uniform": "draw"},
        ["steps=3", "tasks_per_step=4", "tasks.levels=[1, 6, 8]"],
    ),
}
