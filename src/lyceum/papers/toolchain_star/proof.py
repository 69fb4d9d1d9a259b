"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "toolchain-star": Proof(
        ["rollout/a-star/imagined", "rollout/a-star/right", "traces/found"],
        {
            "stages.0.rollout.future=0": "generation",
            "stages.0.rollout={kind: best-first, trajectories: null, depth: 12, max_nodes: 64, step: {by: marker, "
            "markers: ['='], tokens: 16}, sampling: {max_completion_tokens: 80}}": "generation",
        },
        ["steps=2", "rounds=1", "tasks_per_round=2", "tasks.levels=[6]"],
    ),
}
