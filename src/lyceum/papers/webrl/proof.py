"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "webrl": Proof(  # so briefly the outcome model judges all alike, and there is no group to replay
        ["guidance/failed-tasks/tasks/new", "regression/held"],
        {
            "stages.rl.guidance.0.share=0": "generation",
            "stages.rl.objective={kind: reinforce}": "weights",
        },
        [
            *stages(8, 1, 3),
            "stages.outcomes.tasks_per_step=16",
            "stages.outcomes.learner.warmup_steps=1",
            "tasks.levels=[3, 4]",
            "model={beside}/model",
        ],
        beside=[
            *stages(1, 28, tasks=1),
            "tasks.levels=[3, 4]",
            "stages.start.tasks_per_step=20",
            "stages.start.tasks.parts.0.tasks.levels=[3, 4]",
            "stages.start.learner.warmup_steps=1",
        ],
        through=2,
    ),
}
