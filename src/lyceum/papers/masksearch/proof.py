"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "masksearch": Proof(
        [LEARNS, "rollout/turns/calls"],
        {
            "stages.one-or-two-masks.curriculum=uniform": "draw",
            "stages.three-or-four-masks.curriculum=uniform": "draw",
            "stages.tasks.curriculum=uniform": "draw",
        },
        [*stages(1, 1, 1, 1, tasks=1), "model={beside}/model"],
        beside=short_start(14, 10),
    ),
}
