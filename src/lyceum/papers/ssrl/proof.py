"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "ssrl": Proof(
        ["rollout/turns/calls", "reward/part/format"],
        {"rollout.environment={kind: calculator, modulus: 100}": "generation"},
    ),
}
