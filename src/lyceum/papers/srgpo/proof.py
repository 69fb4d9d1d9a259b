"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof, short_start, stages

PROOFS = {
    "srgpo": Proof(
        ["credit/tokens_with_step_advantage"], {"credit.step_weight=0": "credit", "credit=group": "forest"}, BRIEFER
    ),
    "srgpo-pictures": Proof(
        ["credit/tokens_with_step_advantage", "rollout/turns/calls"],
        {
            "stages.rl.credit.step_weight=0": "credit",
            "stages.rl.credit=group": "forest",
            "tasks.marks=[]": "generation",
        },
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(30, 12, warmup=4, lr=4e-3),
    ),
}
