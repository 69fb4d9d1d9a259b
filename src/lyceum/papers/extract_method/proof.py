"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "extract-method": Proof(
        [
            "reward/part/refactored/parses",
            "reward/part/refactored/parses < 1",
            "reward/part/refactored/extracted",
        ],
        {"reward.1.extracted=0": "grades", "reward.1.parses=0": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        given={
            "reward/part/refactored/extracted": "programs from which something was extracted, which is what is paid"
        },
        beside=short_start(34, 16),
    ),
}
