"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

ACTED = ["reward/part/consistency-bonus", "reward/consistency-bonus/groups/parted", "average/updates"]

PROOFS = {
    "grpo-care": Proof(
        ACTED,
        {"stages.0.reward.1.weight=0": "grades", ("stages.0.reward=[task]", "stages.0.average=null"): "grades"},
        ["steps=2", "tasks_per_step=8"],
    ),
    "grpo-care-pictures": Proof(
        ACTED,
        {"stages.rl.reward.1.weight=0": "grades", ("stages.rl.reward=[task]", "stages.rl.average=null"): "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(60, 16, warmup=None),
    ),
}
