"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "sec": Proof(["curriculum/value/5"], {"curriculum.temperature=1e6": "draw"}),
}
