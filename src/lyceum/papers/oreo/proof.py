"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEF, Proof

PROOFS = {
    "oreo": Proof(
        ["oreo/error"],
        {"objective.value_weight=0": "weights", "objective.beta=0": "weights"},
        [*BRIEF, "data.tasks=4"],
    ),
}
