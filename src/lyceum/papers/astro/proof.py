"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "astro": Proof(
        ["traces/found"],
        {"stages.0.traces={kind: solutions, per_task: 4}": "weights"},
        ["stages.0.steps=1", "stages.0.tasks_per_round=2", "stages.1.steps=2", "stages.1.tasks_per_step=2"],
    ),
}
