"""What objectives share that learn from verdicts within a group and read no advantages."""

from __future__ import annotations

from lyceum.core.forest import Forest
from lyceum.core.settings import Composition
from lyceum.objective.base import refuse_value_target
from lyceum.utils.errors import RecipeError


def check_verdicts(kind: str, stage: Composition) -> list[str]:
    """Error lines where a group has one trajectory, or trajectories end without a verdict."""
    company = stage.without_company(f"objective.kind '{kind}' compares the samples of a task")
    lines = refuse_value_target(kind, stage) + company
    if stage.rollout is not None and stage.rollout.values_states:
        lines.append(
            f"rollout.kind: got {stage.rollout.kind!r}, which ends next steps without a verdict, but "
            f"objective.kind '{kind}' learns from verdicts; allowed: another rollout"
        )
    return lines


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
