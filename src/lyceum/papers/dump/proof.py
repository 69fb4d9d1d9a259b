"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "dump": Proof(["curriculum/share/1"], {"curriculum.temperature=1e6": "draw"}),
}
