"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "a-lol": Proof(
        ["a-lol/kept", "a-lol/left_out"],
        {
            "objective.ratio=none": "weights",
            "objective=reinforce": "weights",  # without the choice of rows: `kept` is not logged
            "credit.scale=std": "credit",
        },
        ["steps=2", "tasks_per_step=8", "data.tasks=8"],
    ),
}
