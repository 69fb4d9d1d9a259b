"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "cures": Proof(
        ["curriculum/tested/tasks", "curriculum/most-samples/task > 8", "curriculum/least-samples/task < 8"],
        {"curriculum.temperature=1e6": "draw", "curriculum.allocate=false": "draw", "curriculum=uniform": "draw"},
        ["steps=3", "tasks_per_step=4", "curriculum.pool=8"],
    ),
}
