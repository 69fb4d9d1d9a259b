"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "acre": Proof(
        [f"reward/part/answer-consistency/{name}" for name in ("asked", "consistent", "second_right")],
        {
            "reward={kind: answer-consistency, extract: {after: '#'}, first_right: 1, second_right: 0}": "grades",
            "reward=task": "generation",
        },
        [*stages(1, 1, 2), "stages.2.rollout.samples=4", "model={beside}/model"],
        # Fine-tuning in its second stage, after which the model answers.
        beside=[
            *stages(1, 16, tasks=1),
            *("stages.1.tasks_per_step=10", "stages.1.learner.lr=1e-3", "stages.1.learner.warmup_steps=1"),
        ],
        through=2,
    ),
}
