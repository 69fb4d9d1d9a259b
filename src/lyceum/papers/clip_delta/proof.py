"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "clip-delta": Proof(
        ["reward/part/clip-delta/changed", "reward/part/clip-delta/refined < 0"], {"reward=task": "grades"}
    ),
}
