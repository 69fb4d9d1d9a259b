"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "gain-rl": Proof(
        ["curriculum/moved/places", "curriculum/tokens/read"],
        {"curriculum.shift=0": "draw"},
        ["steps=3", "tasks_per_step=4", "tasks.size=512"],
    ),
}
