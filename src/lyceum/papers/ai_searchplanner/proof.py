"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "ai-searchplanner": Proof(
        [
            "guidance/search-planner/plans/helped",
            "guidance/search-planner/accuracy/found",
            "guidance/search-planner/calls/mean > 1",
        ],
        {"guidance.0.cost=0": "grades", "guidance.0.findings='~{findings}'": "generation"},
        ["steps=2", "tasks_per_step=4"],
        given={"guidance/search-planner/calls/mean > 1": "calls of the planner, whose answers are what is found"},
    ),
}
