"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "inpo": Proof(["pairs"], {"objective.tau=0.1": "weights", "objective={kind: dpo, loss: ipo}": "weights"}),
}
