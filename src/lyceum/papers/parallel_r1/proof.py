"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "parallel-r1": Proof(
        ["reward/part/parallel-thinking/parallel", "reward/part/parallel-thinking/bonus"],
        {"stages.start.tasks=chain-demonstrations": "draw", "stages.easy.reward.1.share=0": "grades"},
        [
            *stages(1, 1, 1, 1, tasks=4),
            "model={beside}/model",
        ],
        beside=[
            *stages(50, 1, 1, 1, tasks=1),
            "stages.start.tasks_per_step=24",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
