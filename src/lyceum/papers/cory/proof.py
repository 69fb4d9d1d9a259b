"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "cory": Proof(
        ["guidance/pioneer-observer/groups_changed/share", "role/swaps"],
        {"guidance.0.transfer=false": "generation", "roles.swap_every=null": "generation"},
        ["steps=2", "tasks_per_step=4", "roles.swap_every=1"],
    ),
}
