"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "thinkless": Proof(
        ["degrpo/control_share", "reward/part/format", "reward/part/format < 1"],
        {
            "stages.1.objective.control_weight=1": "weights",
            "stages.1.reward=[task]": "grades",
            "stages.0.tasks=chain-demonstrations": "draw",
        },
        [*stages(1, 1, tasks=2), "model={beside}/model"],
        beside=[
            *("stages.0.steps=18", "stages.0.tasks_per_step=16", "stages.0.learner.warmup_steps=1"),
            *("stages.1.steps=1", "stages.1.tasks_per_step=1", "checkpoint_every=100"),
        ],
    ),
}
