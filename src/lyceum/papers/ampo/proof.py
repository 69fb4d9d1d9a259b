"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "ampo": Proof(
        ["guidance/multi-guidance/groups/guided", "guidance/multi-guidance/comprehension/others", "external/weight"],
        {
            "guidance=[]": "generation",
            "guidance.0.choose=random": "generation",
            "objective.shaping=1e9": "weights",
        },
    ),
}
