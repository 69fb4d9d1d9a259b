"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "hiersearch": Proof(
        [
            "guidance/hierarchical-search/questions/local",
            "guidance/hierarchical-search/questions/web",
            "guidance/hierarchical-search/evidence/kept",
        ],
        {"stages.planner.guidance.0.keep=null": "generation", "stages.planner.roles={}": "generation"},
        [*stages(1, 1, 1, 2, tasks=2), "model={beside}/model"],
        beside=[
            *stages(30, 1, 1, 1, tasks=1),
            "stages.start.tasks_per_step=16",
            "stages.start.learner.warmup_steps=1",
            "checkpoint_every=100",
        ],
    ),
}
