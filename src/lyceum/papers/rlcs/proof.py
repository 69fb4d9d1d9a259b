"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "rlcs": Proof(
        ["oversample/tasks > 4", "groups_dropped", "curriculum/share/4"],
        {
            "curriculum.offline=unknown": "draw",
            "collect={keep: partly-solved, max_waves: 1}": "draw",
            "collect={keep: all}": "forest",
        },
    ),
}
