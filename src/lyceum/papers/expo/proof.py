"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "expo": Proof(
        ["guidance/self-explanation/groups/guided", "imitated/rows"],
        {"stages.policy.guidance=[]": "generation", "stages.policy.objective.imitation=0": "weights"},
        stages(2, 2),
    ),
}
