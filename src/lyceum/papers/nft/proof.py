"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "nft": Proof(
        ["nft/groups", "nft/floored"],
        {"objective.negative_weight=0": "weights", "objective.prompt_weight=none": "weights"},
        ["steps=2", "tasks_per_step=2"],
        given={"nft/groups": "groups that the loss is over"},
    ),
}
