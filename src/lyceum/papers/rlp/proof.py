"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof

PROOFS = {
    "rlp": Proof(
        ["reward/part/information-gain", "average/updates", LEARNS],
        {
            ("stages.0.reward=[task]", "stages.0.average=null"): "grades",
            ("stages.0.reward.0.baseline=policy", "stages.0.average=null"): "grades",
            "credit=group": "credit",
        },
        ["steps=2", "tasks_per_step=2"],
    ),
}
