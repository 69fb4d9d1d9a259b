"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "rover": Proof(["rover/abs_next_q"], {"objective.bootstrap=0": "weights"}),
}
