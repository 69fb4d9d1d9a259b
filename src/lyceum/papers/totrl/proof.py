"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "totrl": Proof(
        [LEARNS, "reward/part/occurrences"],
        {"stages.1.curriculum.only=[thinking]": "draw", "stages.2.curriculum.only=[plain]": "draw"},
        [*stages(1, 2, 1, tasks=2), "model={beside}/model"],
        beside=short_start(16, 10, lr=2e-3),
    ),
}
