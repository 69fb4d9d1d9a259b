"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "rest-mcts": Proof(
        ["value/updates", "traces/found"],
        {"value.lr=1e-30": "generation"},
        ["steps=2", "rounds=2", "tasks_per_round=1"],
    ),
}
