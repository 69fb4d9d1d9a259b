"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "totrl": Proof(
        [LEARNS, "reward/part/occurrences"],
        {"stages.1.curriculum.only=[thinking]": "draw", "stages.2.curriculum.only=[plain]": "draw"},
        [*stages(1, 2, 1, tasks=2), "model={beside}/model"],
        beside=[
            *("stages.0.steps=24", "stages.0.tasks_per_step=16", "stages.0.learner.warmup_steps=1"),
            *(f"stages.{i}.{size}=1" for i in (1, 2) for size in ("steps", "tasks_per_step")),
            "checkpoint_every=100",
        ],
    ),
}
