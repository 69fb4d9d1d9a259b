"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

SHORTEST = "tasks.parts.1.tasks.tasks.levels=[3]"
"""Solutions of two steps before the last, which are soon learnt."""

PROOFS = {
    "mr-rlvr": Proof(
        ["reward/part/task/reordered", LEARNS],
        {
            "stages.1.curriculum.only=[chain]": "draw",
            ("tasks.parts.1.tasks.reorder_share=0", "stages.1.curriculum.only=[masked]"): "draw",
        },
        [*stages(1, 2, 1), SHORTEST, "model={beside}/model"],
        beside=[*short_start(14, 10, lr=2e-3), f"stages.0.{SHORTEST}"],
        # A chain's step in the head takes more fine-tuning than an order of two.
        late={"reward/part/task/masked": "stages.1.curriculum.only=[reordered]"},
        longer=[
            *stages(120, 2, 1),
            "stages.0.tasks_per_step=32",
            "stages.1.tasks_per_step=32",
            "checkpoint_every=1000",
        ],
    ),
}
