"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEFER, Proof

PROOFS = {
    "self-referential": Proof(
        [f"reward/part/self-reference{part}" for part in ("", "/distance")],
        {"stages.0.reward=[task]": "grades"},
        BRIEFER,
    ),
}
