"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "rl-plus": Proof(
        ["guidance/demonstrations/groups/guided", "external/weight"],
        {"guidance=[]": "generation", "objective.exploration=0": "weights"},
    ),
}
