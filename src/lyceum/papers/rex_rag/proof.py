"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "rex-rag": Proof(
        ["guidance/probes/trajectories/probes", "guidance/probes/trajectories/rescued", "external/weight"],
        {
            "guidance=[]": "generation",
            "objective={kind: ppo-clip, clip_low: 0.2, clip_high: 0.2, aggregate: token}": "weights",
            "objective.share=0.5": "weights",
        },
        BRIEFER,
    ),
}
