"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "echo-chamber": Proof(
        ["reward/part/formats/steps", "reward/part/formats/net", "reward/part/formats/answer"],
        {
            "stages.mixture.tasks.shares.answer=0": "generation",
            "reward=[task]": "grades",
        },
        [*stages(1, 2), "stages.mixture.tasks_per_step=8", "model={beside}/model"],
        beside=short_start(16, 8, warmup=1),
    ),
}
