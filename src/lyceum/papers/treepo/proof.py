"""What shows that the mechanism acts."""

from lyceum.recipe.proof import FLAT, Proof

PROOFS = {
    "treepo": Proof(
        ["rollout/segments/branches", "rollout/segments/fallbacks", "credit/sub_groups", "groups_dropped"],
        {f"rollout={FLAT}": "generation", "credit=group": "forest", "collect.keep=all": "draw"},
    ),
}
