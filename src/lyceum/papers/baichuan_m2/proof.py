"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "baichuan-m2": Proof(
        ["rollout/turns/answered", "reward/part/case-rubric"],
        {
            "stages.consultation.rollout.environment.simulated=false": "generation",
            "stages.rubric.reward.1.generated=false": "generation",
            "stages.rubric.reward=[task]": "generation",
        },
        [*stages(1, 1, 2, 2, tasks=2), "model={beside}/model"],
        beside=[
            *stages(40, 1, 1, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
