"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "amft": Proof(
        ["imitated/rows", "amft/imitation < 0.8", "amft/agreement < 0"],
        {
            "stages.1.objective.meta_lr=0": "weights",
            "stages.1.objective.entropy_lr=0": "weights",
            "stages.1.guidance=[]": "generation",
        },
        stages(1, 3),
    ),
}
