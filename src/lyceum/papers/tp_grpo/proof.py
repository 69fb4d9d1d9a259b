"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "tp-grpo": Proof(
        ["credit/thoughts/cleared", "credit/tokens_changed", "reward/judged-steps/judge/asked"],
        {"stages.1.credit.unit=step": "credit", "stages.1.credit=group": "forest"},
        [*stages(1, 2), "model={beside}/model"],
        given={"reward/judged-steps/judge/asked": "solutions that the judge was asked about"},
        beside=short_start(12, 10, lr=1e-3),
    ),
}
