"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

SEES = [*stages(1, 2), "model={beside}/model"]

A_START = [*stages(60, 1, tasks=1), "stages.start.tasks_per_step=16", "checkpoint_every=100"]
"""A run in which a model that sees has learnt the form of answers, which a brief one begins from."""

PROOFS = {
    "ui-r1": Proof(
        ["reward/part/task", "reward/part/task#2", "reward/part/format", LEARNS],
        {"reward=[task]": "grades", "reward.0.part=null": "grades"},
        SEES,
        beside=A_START,
    ),
}
