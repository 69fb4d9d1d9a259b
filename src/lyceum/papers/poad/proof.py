"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "poad": Proof(
        ["credit/actions", "credit/tokens_within_actions"], {"credit={kind: gae, gamma: 0.95}": "credit"}, BRIEFER
    ),
}
