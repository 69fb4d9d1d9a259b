"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start

PROOFS = {
    "acecode": Proof(
        [f"reward/part/code-efficiency/{part}" for part in ("efficiency", "dearer")],
        {"reward={kind: code}": "grades", "reward.passes=1": "grades"},
        ["stages.0.steps=1", "stages.1.steps=2", "stages.1.tasks_per_step=8", "model={beside}/model"],
        beside=short_start(30, 12),
    ),
}
