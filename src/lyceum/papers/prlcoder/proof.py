"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "prlcoder": Proof(
        ["value/updates", "reward/part/code-lines/mutated", "reward/part/clip-delta/refined < 0", LEARNS],
        {"stages.policy.credit.process_coefficient=0": "credit"},
        [*stages(1, 1, 2, tasks=2), "stages.lines.tasks_per_step=4", "model={beside}/model"],
        given={"reward/part/code-lines/mutated": "programs spoilt at one line, from which the model of lines learns"},
        beside=[*stages(20, 1, 1, tasks=2), "stages.0.tasks_per_step=16", "stages.0.learner.warmup_steps=1"],
    ),
}
