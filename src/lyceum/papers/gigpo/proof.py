"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "gigpo": Proof(["credit/steps_compared"], {"credit.step_weight=0": "credit", "credit=group": "forest"}),
}
