"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEF, Proof

PROOFS = {
    "train-long-think-short": Proof(
        ["curriculum/tokens/budget", "reward/part/token-budget", "reward/part/format"],
        {"curriculum.every_steps=1000": "generation", "stages.0.reward=[task]": "grades"},
        [*BRIEF, "curriculum.every_steps=1"],
    ),
}
