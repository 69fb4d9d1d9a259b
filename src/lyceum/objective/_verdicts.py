"""What objectives share that learn from verdicts within a group and read no advantages."""

from __future__ import annotations

from lyceum.core.forest import Forest
from lyceum.utils.errors import RecipeError


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
