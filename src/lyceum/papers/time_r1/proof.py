"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "time-r1": Proof(
        ["reward/part/distance/distance", "reward/part/distance/alpha < 0.1", "reward/part/format"],
        {
            "stages.strict.reward.0.lenient.end=0.07": "grades",
            "stages.lenient.reward.0.lenient=null": "grades",
            "stages.easy.curriculum=uniform": "draw",
        },
        stages(1, 1, 2, tasks=2),
        given={"reward/part/format": "completions in the form that earns the bonus"},
    ),
}
