"""What shows that the mechanism acts."""

from lyceum.recipe.proof import WRITES_PROGRAMS, Proof, stages

PROOFS = {
    "autotriton": Proof(
        ["reward/part/format/failed", "reward/part/format"],
        {"reward=[code]": "grades"},
        [*stages(1, 2, tasks=3), "model={beside}/model"],
        beside=WRITES_PROGRAMS,
    ),
}
