"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "barfi": Proof(
        ["outer/steps/correct/moved", "outer/token-budget/moved"],
        {"stages.0.outer_lr=0": "credit"},
        ["steps=3", "tasks_per_step=8"],
    ),
}
