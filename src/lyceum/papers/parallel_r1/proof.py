"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "parallel-r1": Proof(
        ["reward/part/parallel-thinking/parallel", "reward/part/parallel-thinking/bonus"],
        {"stages.start.tasks=chain-demonstrations": "draw", "stages.easy.reward.1.share=0": "grades"},
        [
            *stages(1, 1, 1, 1, tasks=4),
            "model={beside}/model",
        ],
        beside=short_start(40, 16, lr=2e-3),
    ),
}
