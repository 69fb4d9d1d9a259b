"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "pacs": Proof(
        ["groups_of_both"],
        {"objective.balance=false": "weights"},
        given={"groups_of_both": "groups with right and wrong samples, which are balanced"},
    ),
}
