"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "prlcoder": Proof(
        ["value/updates", "reward/part/code-lines/mutated", "reward/part/clip-delta/refined < 0", LEARNS],
        {"stages.policy.credit.process_coefficient=0": "credit"},
        [*stages(1, 1, 2, tasks=2), "stages.lines.tasks_per_step=4", "model={beside}/model"],
        given={"reward/part/code-lines/mutated": "programs spoilt at one line, from which the model of lines learns"},
        beside=short_start(18, 12),
    ),
}
