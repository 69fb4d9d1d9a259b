"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "zerosearch": Proof(
        ["rollout/turns/calls", "rollout/turns/noisy"],
        {"stages.1.rollout.environment.noise=[0, 0]": "generation"},
        stages(2, 2, tasks=2),
    ),
}
