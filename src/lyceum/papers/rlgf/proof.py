"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "rlgf": Proof(
        [
            "guidance/guide-model/rollouts/begun",
            "guidance/guide-model/rollouts/finished",
            "guidance/guide-model/tokens/guide",
        ],
        {
            "guidance.0.share=0": "generation",
            "guidance.0.switch_at=1": "generation",
            "guidance.0.tier=knowledge": "generation",
        },
        ["steps=2", "tasks_per_step=4"],
    ),
}
