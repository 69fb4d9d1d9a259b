"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "ghpo": Proof(["guidance/ghpo/groups/guided"], {"guidance=[]": "generation"}),
}
