"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "qwenlong-l1": Proof(
        ["curriculum/returned/tasks", "curriculum/phase > 1"],
        {"stages.1.curriculum.returning=0": "draw", "stages.1.curriculum.every_steps=1000": "draw"},
        [*stages(1, 2), "stages.1.curriculum.every_steps=1"],
    ),
}
