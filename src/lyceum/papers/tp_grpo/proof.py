"""What shows that the mechanism acts."""

from lyceum.recipe.proof import JUDGES, Proof, stages

PROOFS = {
    "tp-grpo": Proof(
        ["credit/thoughts/cleared", "credit/tokens_changed", "reward/judged-steps/judge/asked"],
        {"stages.1.credit.unit=step": "credit", "stages.1.credit=group": "forest"},
        [*stages(1, 2), "model={beside}/model"],
        given={"reward/judged-steps/judge/asked": "solutions that the judge was asked about"},
        beside=[*JUDGES, "stages.1.steps=1", "stages.1.tasks_per_step=1"],
    ),
}
