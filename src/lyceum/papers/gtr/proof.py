"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "gtr": Proof(
        [
            "guidance/thought-corrector/thoughts/corrected",
            "guidance/thought-corrector/tokens/kept",
            "imitated/rows",
        ],
        {
            "guidance=[]": "generation",
            "objective.imitation=0": "weights",
            "guidance.0.share=0.5": "generation",
        },
        ["steps=2", "tasks_per_step=4"],
    ),
}
