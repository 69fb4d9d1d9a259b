"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "deepmath-103k": Proof(
        ["tasks/judged", "tasks/disputed"],
        {"tasks.near=null": "draw", "tasks.solutions=null": "draw", "curriculum=uniform": "draw"},
        [*BRIEFER, "tasks.tasks.size=200", "tasks.tasks.benchmark=40"],
    )
}
