"""What shows that the mechanism acts."""

from lyceum.recipe.proof import WRITES_PROGRAMS, Proof

PROOFS = {
    "acecode": Proof(
        [f"reward/part/code-efficiency/{part}" for part in ("efficiency", "dearer")],
        {"reward={kind: code}": "grades", "reward.passes=1": "grades"},
        ["stages.0.steps=1", "stages.1.steps=2", "stages.1.tasks_per_step=8", "model={beside}/model"],
        beside=[*WRITES_PROGRAMS, "stages.0.steps=34", "stages.1.steps=1", "stages.1.tasks_per_step=1"],
    ),
}
