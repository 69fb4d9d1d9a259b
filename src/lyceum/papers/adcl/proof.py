"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "adcl": Proof(
        [
            *(f"curriculum/{name}/tasks" for name in ("tested", "moved")),
            "guidance/guide-grpo/groups/rescued",
        ],
        {"curriculum.tests=0": "draw", "guidance=[]": "generation"},
        ["steps=2", "tasks_per_step=8", "tasks.size=8", "tasks.levels=[4, 8]", "curriculum.window=8"],
    ),
}
