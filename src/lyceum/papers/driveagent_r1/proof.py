"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "driveagent-r1": Proof(
        ["guidance/forced-modes/groups/contrasted", "rollout/turns/calls", "reward/part/tool-calls"],
        {
            "stages.forced.guidance=[]": "generation",
            "stages.chosen.reward=[{kind: task, steps: false}]": "grades",
        },
        [*stages(1, 2, 1, tasks=3), "model={beside}/model"],
        beside=short_start(10, 8, lr=1e-3),
    ),
    "driveagent-r1-pictures": Proof(
        [
            "guidance/forced-modes/groups/contrasted",
            "rollout/turns/looks",
            "reward/part/mode-choice/tool",
            "reward/part/mode-choice/contrasted",
        ],
        {
            "stages.forced.guidance=[]": "generation",
            "stages.chosen.reward=[{kind: task, steps: false}]": "grades",
            "stages.chosen.reward.1.cost=0": "grades",
            "stages.chosen.rollout.environment.least_share=1": "generation",
        },
        [*stages(1, 2, 2), "model={beside}/model"],
        beside=short_start(40, 12, warmup=4, lr=4e-3),
    ),
}
