"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "dr-po": Proof(
        ["guidance/dataset-reset/rollouts/reset", "guidance/dataset-reset/tokens/given", "reward/part/model/outcome"],
        {"stages.policy.guidance.0.share=0": "generation", "stages.policy.credit.kl_in_reward.coefficient=0": "credit"},
        stages(1, 2, tasks=2),
    ),
}
