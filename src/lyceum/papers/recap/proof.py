"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "recap": Proof(
        ["curriculum/weight/chain > 1", "curriculum/weight/functions < 1"],
        {
            "stages.1.curriculum.temperature=1e9": "forest",
            "stages.1.curriculum.draws={kind: subset, by: provenance, only: [chain]}": "draw",
        },
        [*stages(1, 3), "stages.1.curriculum.window=2"],
    ),
}
