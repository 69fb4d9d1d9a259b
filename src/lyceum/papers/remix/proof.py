"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "remix": Proof(
        ["replay/groups", "replay/age", "mix/recorded", "kl/convex", "kl/reference_share < 1"],
        {
            "stages.mixed.replay=null": "draw",
            "stages.mixed.learner.epochs=1": "weights",
            "stages.mixed.objective.kl_convex.coefficient=0": "weights",
            "stages.mixed.objective.kl_convex.least=1": "weights",
        },
        [*stages(4, 2), "stages.mixed.objective.kl_convex.hold_steps=1"],
    ),
}
