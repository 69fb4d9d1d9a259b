"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "hiersearch": Proof(
        [
            "guidance/hierarchical-search/questions/local",
            "guidance/hierarchical-search/questions/web",
            "guidance/hierarchical-search/evidence/kept",
        ],
        {"stages.planner.guidance.0.keep=null": "generation", "stages.planner.roles={}": "generation"},
        [*stages(1, 1, 1, 2, tasks=2), "model={beside}/model"],
        beside=short_start(24, 14),
    ),
}
