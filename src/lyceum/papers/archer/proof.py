"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEF, Proof

PROOFS = {
    "archer": Proof(
        ["value/target/behind", "credit/turns_judged", "credit/advantage/mean_abs"],
        {"credit={kind: group, scale: std}": "forest", "value.tau=1": "grades"},
        [*BRIEF, "value.updates=2", "value.warm_up_steps=0"],
    ),
}
