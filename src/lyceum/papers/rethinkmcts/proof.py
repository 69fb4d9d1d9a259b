"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

ONE_AT_A_TIME = ["reward.0.processes=1", "reward.1.processes=1"]
"""Programs: another process takes longer to start than they take."""

PROOFS = {
    "rethinkmcts": Proof(
        ["rollout/rethink-mcts/programs", "rollout/rethink-mcts/rethought"],
        {"rollout.rethinks=0": "generation"},  # programs that pass, and evaluations: tests/papers/test_rethinkmcts.py
        [*stages(1, 2, tasks=1), "stages.1.rollout.iterations=2", *ONE_AT_A_TIME, "model={beside}/model"],
        beside=short_start(17, 16),
    ),
}
