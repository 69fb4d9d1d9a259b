"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "kimi-k1-5": Proof(
        ["reward/part/length-range < 0", "regression/held"],
        {"stages.1.reward=[task]": "grades", "stages.1.objective.tau=1e-6": "weights"},
        stages(1, 1, tasks=2),
    ),
    "partial-rollouts": Proof(
        ["continued/trajectories", "under_way/trees"],
        {"rollout.tokens_per_step=null": "draw"},
        ["steps=3", "tasks_per_step=4"],
    ),
}
