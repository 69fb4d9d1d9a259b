"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "epo": Proof(["epo/outside"], {"objective.penalty=0": "weights", "objective=ppo-clip": "weights"}),
}
