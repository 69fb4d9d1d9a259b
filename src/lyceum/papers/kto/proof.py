"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "kto": Proof(
        ["kto/desirable", "kto/undesirable", "kto/kl"],
        {"objective.loss=apo_zero_unpaired": "weights", "objective.undesirable_weight=0": "weights"},
        given={"kto/desirable": "samples that the loss makes likelier"},
    ),
}
