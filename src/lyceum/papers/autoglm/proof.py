"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "autoglm": Proof(
        [
            "guidance/planner-grounder/places/right",
            "guidance/planner-grounder/presses/missed",
            "curriculum/tasks/new",
        ],
        {
            "stages.rl.guidance.0.groundings=1": "generation",
            "stages.rl.curriculum.share=0": "draw",
            "stages.rl.roles={models: [planner], play: {planner: planner, grounder: planner}}": "generation",
        },
        [*stages(1, 3), "model={beside}/model"],
        beside=short_start(20, 16),
    ),
}
