"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "seele": Proof(["guidance/seele/share/round_4"], {"guidance=[]": "generation"}, ["steps=2", "tasks_per_step=2"]),
}
