"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof

PROOFS = {
    "cispo": Proof([LEARNS], {"objective.kind=ppo-clip": "weights"}),
}
