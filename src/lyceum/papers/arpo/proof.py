"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "arpo": Proof(
        [f"rollout/branching-turns/{count}" for count in ("branches", "by_entropy")],
        {"rollout.entropy_weight=0": "generation", "rollout.whole=8": "generation"},
        BRIEFER,
    ),
}
