"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

ACTED = [
    "guidance/thought-corrector/thoughts/corrected",
    "guidance/thought-corrector/tokens/kept",
    "imitated/rows",
]

PROOFS = {
    "gtr": Proof(
        ACTED,
        {
            "guidance=[]": "generation",
            "objective.imitation=0": "weights",
            "guidance.0.share=0.5": "generation",
        },
        ["steps=2", "tasks_per_step=4"],
    ),
    "gtr-pictures": Proof(
        ACTED,
        {
            "stages.rl.guidance=[]": "generation",
            "stages.rl.objective.imitation=0": "weights",
            "stages.rl.guidance.0.share=0.5": "generation",
        },
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(16, 12, warmup=4, lr=4e-3),
    ),
}
