"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "guide-grpo": Proof(
        ["guidance/guide-grpo/groups/rescued", "guided/weight"],
        {"guidance=[]": "generation", "objective=ppo-clip": "weights"},
    ),
}
