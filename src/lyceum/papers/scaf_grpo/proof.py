"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "scaf-grpo": Proof(["guidance/scaffold/groups/guided"], {"guidance=[]": "generation"}),
}
