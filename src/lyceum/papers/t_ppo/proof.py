"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "t-ppo": Proof(
        ["under_way/trees", "credit/unfinished/trained", "credit/unfinished/held_back", "credit/tokens/value"],
        {
            "credit={kind: gae, gamma: 1.0, lam: 0.95}": "forest",
            "credit.held_back=0": "credit",
            "rollout.tokens_per_step=null": "draw",
        },
        ["steps=2", "tasks_per_step=6"],
    ),
}
