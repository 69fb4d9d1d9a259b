"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "prime": Proof(
        ["value/updates", "value/pairs/accuracy", "credit/tokens_with_process_reward", "groups_dropped"],
        {
            "value.online=false": "grades",
            "credit.process_coefficient=0": "credit",
            "credit.normalise=none": "credit",
            "collect={keep: all}": "draw",
        },
        ["steps=3", "tasks_per_step=4"],
    ),
}
