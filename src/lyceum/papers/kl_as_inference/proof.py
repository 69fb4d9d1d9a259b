"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "kl-as-inference": Proof(
        ["forward_kl/moved", "forward_kl/effective_samples < 7"],
        {"objective.beta=1e6": "weights", "objective.prior=old": "weights"},
        ["steps=2", "tasks_per_step=2"],
    ),
}
