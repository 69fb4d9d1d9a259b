"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "latr": Proof(
        ["rollout/look-ahead/opened", "rollout/look-ahead/dropped", "kl/reference"],
        {"rollout.shares=[[0.0, 0.0]]": "generation", "objective.kl.coefficient=0": "weights"},
    ),
}
