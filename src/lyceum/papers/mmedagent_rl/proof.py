"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

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
        beside=short_start(40, 8, warmup=None),
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
        beside=short_start(60, 16, warmup=5),
    ),
}
