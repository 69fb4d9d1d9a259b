"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "drpo": Proof(
        ["drpo/groups", "drpo/moved_by_length", "drpo/outside"],
        {
            "objective.length_temperature=1e6": "weights",
            "objective.penalty=0": "weights",
            "objective=ppo-clip": "weights",
        },
    ),
}
