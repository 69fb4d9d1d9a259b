"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "rest-rl": Proof(
        ["guidance/prefix/groups/prefix", "curriculum/kept/tasks", "value/updates"],
        {("stages.0.curriculum=uniform", "stages.0.guidance=[]"): "draw"},
        [
            *("stages.0.steps=2", "stages.0.tasks_per_step=4", "stages.0.curriculum.pool=4"),
            *("stages.1.steps=2", "stages.1.tasks_per_round=1", "stages.1.rollout.iterations=3"),
            "stages.1.rollout.width=2",
        ],
    ),
}
