"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "salt": Proof(["credit/steps_shared"], {"credit=group": "forest"}),
}
