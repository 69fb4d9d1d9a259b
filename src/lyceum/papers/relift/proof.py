"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "relift": Proof(
        ["fine_tuning/collected", "fine_tuning/steps"],
        {"fine_tuning.batch=1000": "weights"},
        ["steps=3", "tasks_per_step=4", "fine_tuning.batch=1"],
    ),
}
