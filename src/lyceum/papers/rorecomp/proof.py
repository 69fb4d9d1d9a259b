"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "rorecomp": Proof(
        ["replay/groups", "credit/priority_rows", "credit/compensation_rows", "credit/left_out"],
        {"replay=null": "forest", "credit.share=1": "credit"},
        ["steps=2", "tasks_per_step=8"],
    ),
}
