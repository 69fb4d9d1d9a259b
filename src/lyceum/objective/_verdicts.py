"""What objectives share that learn from verdicts within a group and read no advantages."""

from __future__ import annotations

from lyceum.core.forest import Forest
from lyceum.core.needs import Need, Without
from lyceum.objective.base import NO_VALUE_HEAD
from lyceum.utils.errors import RecipeError

OF_VERDICTS = (
    NO_VALUE_HEAD,
    Need("company", "{who} compares the samples of a task", "2 or more"),
    Without(
        "state-values",
        ", which ends next steps without a verdict, but {who} learns from verdicts",
        "another rollout",
    ),
)
"""What they need: groups of several trajectories, each of which has a verdict."""


def require_verdicts(kind: str, forest: Forest) -> None:
    """
    Raises:
        RecipeError: a trajectory has none.
    """
    if bool(forest.correct.isnan().any()):
        raise RecipeError(
            f"objective.kind: got '{kind}', but the grader gave no verdict on some trajectories; allowed: rewards "
            "that say correct or incorrect"
        )
