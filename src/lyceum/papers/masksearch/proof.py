"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "masksearch": Proof(
        [LEARNS, "rollout/turns/calls"],
        {
            "stages.one-or-two-masks.curriculum=uniform": "draw",
            "stages.three-or-four-masks.curriculum=uniform": "draw",
            "stages.tasks.curriculum=uniform": "draw",
        },
        [*stages(1, 1, 1, 1, tasks=1), "model={beside}/model"],
        beside=[
            *stages(16, 1, 1, 1, tasks=1),
            "stages.start.tasks_per_step=12",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
