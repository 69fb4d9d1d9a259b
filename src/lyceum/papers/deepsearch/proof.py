"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "deepsearch": Proof(
        [
            *(f"rollout/mcts/{name}" for name in ("frontier_moves", "negatives_with_choice", "right")),
            *(f"guidance/search-where-hard/{name}" for name in ("searched/tasks", "dropped/tasks", "used/solutions")),
            *("credit/all_wrong_groups_trained", "curriculum/easy/found", "reward/part/overlong < 0"),
        ],
        {
            "guidance.0.cached_tasks=0": "generation",
            "credit.equal=skip": "credit",
            "rollout.selection=uct-from-root": "generation",
            "guidance=[]": "generation",
            "rollout.negative=random": "grades",
            "reward=[task]": "grades",
        },
        # A pool of which the second step draws again what the first did not solve.
        ["steps=2", "tasks_per_step=6", "tasks.levels=[7, 8]", "curriculum.pool=6", "curriculum.least=1"],
    ),
}
