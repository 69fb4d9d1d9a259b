"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "ruscarl": Proof(
        ["guidance/rubric-scaffold/shown/mean", "reward/part/rubric"],
        {"guidance=[]": "generation", "reward=task": "grades"},
    ),
}
