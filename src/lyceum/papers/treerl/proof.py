"""What shows that the mechanism acts."""

from lyceum.recipe.proof import FLAT, Proof

PROOFS = {
    "treerl": Proof(
        ["rollout/critical-tokens/resampled", "credit/nodes_shared"],
        {f"rollout={FLAT}": "generation", "rollout.uncertainty=entropy": "generation", "credit=group": "forest"},
    ),
}
