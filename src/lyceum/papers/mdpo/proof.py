"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "mdpo": Proof(
        ["kl/mdpo", "mdpo/step_size < 1"],
        {"objective.step_size=1e6": "weights", "objective.fall_steps=null": "weights"},
        ["steps=2", "tasks_per_step=2"],
    ),
}
