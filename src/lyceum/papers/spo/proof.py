"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "spo": Proof(
        ["credit/rows_tracked", "curriculum/deviation/picked", "curriculum/tasks/known"],
        {"credit=reinforce": "forest", "credit.half_life=1e-9": "credit", "curriculum=uniform": "draw"},
        ["steps=3", "tasks_per_step=8", "tasks.size=12"],
    ),
}
