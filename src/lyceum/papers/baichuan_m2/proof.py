"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "baichuan-m2": Proof(
        ["rollout/turns/answered", "reward/part/case-rubric"],
        {
            "stages.consultation.rollout.environment.simulated=false": "generation",
            "stages.rubric.reward.1.generated=false": "generation",
            "stages.rubric.reward=[task]": "generation",
        },
        [*stages(1, 1, 2, 2, tasks=2), "model={beside}/model"],
        beside=short_start(24, 12, lr=2e-3),
    ),
}
