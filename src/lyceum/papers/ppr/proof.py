"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "ppr": Proof(
        ["reward/part/renorm/steps", "reward/part/renorm/shifted < 0"],
        {"stages.1.reward.1.mu=0": "grades", "stages.1.reward.1.of.principles=[whole]": "grades"},
        [*stages(1, 2, tasks=2), "stages.1.rollout.samples=4", "tasks.levels=[4]"],
        given={"reward/part/renorm/steps": "steps that the judge has marked"},
    ),
}
