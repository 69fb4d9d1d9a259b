"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "spiral": Proof(
        [
            "guidance/self-play/games/played",
            "role/first/trajectories",
            "role/second/trajectories",
            "credit/baseline/apart",
        ],
        {
            "stages.1.credit=reinforce": "credit",
            ("stages.1.guidance=[]", "stages.1.credit=group"): "generation",  # against the players of the evaluation
        },
        [*stages(24, 3, tasks=2), "stages.0.tasks_per_step=8", "stages.0.learner.warmup_steps=1", "checkpoint_every=9"],
    ),
}
