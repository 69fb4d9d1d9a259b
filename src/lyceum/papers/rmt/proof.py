"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof

PROOFS = {
    "rmt": Proof(
        ["next_tokens/tokens", "next_tokens/nll", "curriculum/entropy/pool", "curriculum/tokens/budget < 80", LEARNS],
        {
            "curriculum.draws=uniform": "draw",
            "stages.0.reward.1.weight=0": "grades",
            "stages.0.next_tokens.learner.lr=1e-30": "weights",
            "curriculum.every_steps=1000": "grades",
        },
        ["steps=2", "tasks_per_step=2", "curriculum.every_steps=1"],
    ),
}
