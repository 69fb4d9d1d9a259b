"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "orpo": Proof(["pairs"], {"objective.beta=0": "weights"}),
}
