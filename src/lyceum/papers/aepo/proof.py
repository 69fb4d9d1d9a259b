"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "aepo": Proof(
        [
            *(f"rollout/branching-turns/{count}" for count in ("branches", "by_entropy", "held_back")),
            *("rollout/branching-turns/whole < 5", "credit/tokens_raised", "clip/high"),
        ],
        {
            "rollout.whole=5": "generation",
            "rollout.penalty=0": "generation",
            "credit.entropy_weight=0": "credit",
            "objective.keep_high=false": "weights",
        },
        ["steps=4", "tasks_per_step=4", "learner.warmup_steps=1"],
    ),
}
