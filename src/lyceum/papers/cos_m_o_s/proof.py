"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "cos-m-o-s": Proof(
        ["reward/part/curiosity", "pairs/later_steps"],
        {
            "stages.first-round.reward.0.target=50": "grades",
            "stages.first-round.objective.of=trajectories": "weights",
        },
        [*stages(1, 1, 1, tasks=2), "stages.first-round.data.tasks=2", "stages.second-round.data.tasks=2"],
    ),
}
