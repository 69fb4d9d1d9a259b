"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "syn-grpo": Proof(
        ["guidance/proposer-solver/proposals/diversity"],
        {"stages.rl.guidance.0.earns=difficulty": "grades", "stages.rl.guidance.0.proposals=2": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(20, 12),
    ),
    "syn-grpo-pictures": Proof(
        ["guidance/proposer-solver/proposals/diversity", "guidance/proposer-solver/proposals/distinct_in_group"],
        {
            "stages.rl.guidance.0.earns=difficulty": "grades",
            "stages.rl.guidance.0.proposals=2": "generation",
            "stages.rl.guidance=[]": "generation",
        },
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(60, 12, warmup=4, lr=4e-3),
    ),
}
