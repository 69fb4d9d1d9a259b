"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "gspo": Proof(["clip/low"], {"objective.form=token": "weights", "objective=ppo-clip": "weights"}),
}
