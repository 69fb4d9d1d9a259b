"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "prof": Proof(
        [
            *("value/updates", "reward/part/model/process"),
            *(f"guidance/consistency-filter/{name}" for name in ("dropped/correct", "dropped/wrong", "lead/wrong")),
        ],
        {"stages.policy.guidance=[]": "generation", "stages.steps.value.lr=1e-30": "grades"},
        stages(1, 2),
    ),
}
