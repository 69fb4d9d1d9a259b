"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

SEES = [*stages(1, 2), "model={beside}/model"]

PROOFS = {
    "ui-r1": Proof(
        ["reward/part/task", "reward/part/task#2", "reward/part/format", LEARNS],
        {"reward=[task]": "grades", "reward.0.part=null": "grades"},
        SEES,
        beside=short_start(60, 16, warmup=None),
    ),
}
