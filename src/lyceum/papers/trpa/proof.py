"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "trpa": Proof(
        ["pairs", "trpa/levels > 2"],
        {
            "objective.anisotropy=1": "weights",
            "objective.trust_region=0": "weights",
            "stages.0.reward=[task]": "grades",
        },
    ),
}
