"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

SHORT_JUDGEMENTS = "stages.0.tasks={kind: chain-judgements, forms: [scores], levels: [1]}"
"""Of chains of one operation, which are soon learnt."""

PROOFS = {
    "spct": Proof(
        ["reward/part/ranking/read", "reward/judge/votes/dropped", "value/paths", LEARNS],
        {
            "stages.3.reward.1.keep=null": "grades",
            "stages.1.reward=[task]": "grades",
            "stages.3.reward.1.shuffle=false": "generation",
        },
        [
            *stages(1, 1, 1, 1, tasks=2),
            *("tasks.parts.0.tasks={kind: chain, levels: [1]}", "tasks.parts.1.tasks.levels=[1]"),
            *(SHORT_JUDGEMENTS, "model={beside}/model"),
        ],
        given={
            "reward/part/ranking/read": "judgements that could be read",
            "value/paths": "judgements that the model of them learns",
        },
        beside=[*short_start(40, 2), SHORT_JUDGEMENTS],
    ),
}
