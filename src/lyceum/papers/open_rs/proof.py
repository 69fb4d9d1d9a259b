"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof

PROOFS = {
    "open-rs": Proof(
        ["reward/part/length-cosine", "reward/part/format", LEARNS],
        {"reward.1.max_tokens=1000000": "grades", "reward=task": "grades"},
    ),
}
