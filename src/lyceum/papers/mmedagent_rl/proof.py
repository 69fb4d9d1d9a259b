"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "mmedagent-rl": Proof(
        ["reward/part/advice", "reward/part/advice/corrected", "reward/part/advice/misled"],
        {
            "stages.hard.curriculum=uniform": "draw",
            "stages.medium.curriculum=uniform": "draw",
            "stages.easy.curriculum=uniform": "draw",
            "stages.hard.objective.entropy_coefficient=0": "weights",
            "reward=[task]": "grades",
        },
        [*stages(1, 1, 1, 2), "model={beside}/model"],
        beside=[
            *stages(40, 1, 1, 1, tasks=1),
            "stages.start.tasks_per_step=8",
            "checkpoint_every=100",
        ],
    ),
    "mmedagent-rl-pictures": Proof(
        ["reward/part/advice", "reward/part/advice/corrected", "reward/part/advice/misled"],
        {
            "stages.hard.curriculum=uniform": "draw",
            "stages.medium.curriculum=uniform": "draw",
            "stages.easy.curriculum=uniform": "draw",
            "stages.triage.curriculum=uniform": "draw",
            "stages.hard.objective.entropy_coefficient=0": "weights",
            "reward=[task]": "grades",
        },
        [*stages(1, 1, 1, 1, 2), "model={beside}/model"],
        beside=[
            *stages(60, 1, 1, 1, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=5",
            "checkpoint_every=100",
        ],
    ),
}
