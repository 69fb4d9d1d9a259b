"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LONGER, Proof

PROOFS = {
    "p3o": Proof(
        ["pairs", "p3o/difference"],
        {"objective.clip=separate": "weights", "credit.kl_in_reward.coefficient=0": "credit"},
        late={"p3o/clipped": "objective.clip_range=0.99"},  # no ratio of a pair is 0.2 from 1 in so few steps
        longer=LONGER,
    ),
}
