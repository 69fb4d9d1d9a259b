"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

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
        beside=[
            *stages(24, 1, tasks=1),
            "stages.start.tasks_per_step=24",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
