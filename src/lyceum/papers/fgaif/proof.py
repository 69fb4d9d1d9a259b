"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

SHORT_MARKS = "stages.0.tasks.parts.0.tasks.levels=[1]"

PROOFS = {
    "fgaif": Proof(
        ["reward/part/segment-errors/right", "value/updates", *(f"reward/part/model/{n}" for n in (1, 2, 3))],
        {
            "stages.policy.value.weights=[1, 1, 0]": "grades",
            "stages.policy.credit.process_coefficient=0": "credit",
            "stages.policy.value={kind: model, from_stage: operations}": "grades",
        },
        [*stages(1, 1, 1, 1, 2, tasks=2), "tasks.levels=[1]", SHORT_MARKS, "model={beside}/model"],
        given={"reward/part/segment-errors/right": "the judge's marks, which the models learn"},
        beside=[*short_start(40, 4), "tasks.levels=[1]", SHORT_MARKS],
    ),
}
