"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "unlikeliness": Proof(["reward/part/unlikeliness < 0"], {"stages.0.reward=[task]": "grades"}, BRIEFER),
}
