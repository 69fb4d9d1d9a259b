"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "thinkless": Proof(
        ["degrpo/control_share", "reward/part/format", "reward/part/format < 1"],
        {
            "stages.1.objective.control_weight=1": "weights",
            "stages.1.reward=[task]": "grades",
            "stages.0.tasks=chain-demonstrations": "draw",
        },
        [*stages(1, 1, tasks=2), "model={beside}/model"],
        beside=short_start(12, 10, lr=1e-3),
    ),
}
