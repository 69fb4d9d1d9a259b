"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "gkd": Proof(
        ["teacher/divergence"],
        {"stages.1.objective.divergence=reverse": "weights"},
        stages(1, 2),
    ),
}
