"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "syn-grpo": Proof(
        ["guidance/proposer-solver/proposals/diversity"],
        {"stages.rl.guidance.0.earns=difficulty": "grades", "stages.rl.guidance.0.proposals=2": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        beside=[
            *stages(24, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
    "syn-grpo-pictures": Proof(
        ["guidance/proposer-solver/proposals/diversity", "guidance/proposer-solver/proposals/distinct_in_group"],
        {
            "stages.rl.guidance.0.earns=difficulty": "grades",
            "stages.rl.guidance.0.proposals=2": "generation",
            "stages.rl.guidance=[]": "generation",
        },
        [*stages(1, 2), "model={beside}/model"],
        beside=[
            *stages(100, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=5",
            "checkpoint_every=200",
        ],
    ),
}
