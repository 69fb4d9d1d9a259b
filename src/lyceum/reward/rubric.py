"""The share of a rubric's points that a completion earns, each criterion checked by rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lyceum.core.rubric import Criterion, has_rule, is_met, rubric_of
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each
from lyceum.utils.errors import RecipeError

CHECKED = 64
"""Number of tasks whose rubrics are checked before a model is loaded; for a dataset all."""


class Rubric(RewardSettings):
    """Points of the criteria met, over all points above 0. Criteria that need a judge take reward kind ``function``."""

    kind: Literal["rubric"] = "rubric"

    def build(self, source: TaskSource) -> Grader:
        for index in source.looked_at(CHECKED):
            _check(source[index])
        return each(self.score)

    def score(self, task: Task, leaf: Node) -> Grade:
        rubric = rubric_of(task.columns)
        if not any(criterion["points"] > 0 for criterion in rubric):
            return Grade.ungraded(f"task {task.id!r} has no criterion with points above 0")
        met = [is_met(criterion, leaf.completion) for criterion in rubric]
        return Grade(rubric_score([criterion["points"] for criterion in rubric], met))


def rubric_score(points: Sequence[float], met: Sequence[bool]) -> float:
    """Weighted share of the criteria that are met.

        S = sum_i b_i p_i / sum_{i: p_i > 0} p_i

    Args:
        points: p_i of each criterion, in the rubric's unit; below 0 for what should not be there.
        met: b_i, whether the completion meets it.
    Returns:
        At most 1, without unit; below 0 where what should not be there outweighs the rest.
    Raises:
        ZeroDivisionError: no criterion has points above 0.
    Source:
        RuscaRL, arXiv:2508.16949, section 3 (rubric-based rewards); not clipped at 0, as in the released code.
    """
    return sum(p for p, b in zip(points, met, strict=True) if b) / sum(p for p in points if p > 0)


def _check(task: Task) -> None:
    rubric: list[Criterion] = rubric_of(task.columns)
    if not rubric:
        raise RecipeError(
            f"reward.rubric: task {task.id!r} has no criteria; allowed: tasks with a rubric (tasks.columns.rubric of a "
            "dataset), or another reward"
        )
    for criterion in rubric:
        if not has_rule(criterion):
            raise RecipeError(
                f"reward.rubric: criterion {criterion['criterion']!r} of task {task.id!r} has no rule to check it by; "
                "allowed: exactly one of contains and ends (for a judge, reward kind 'function')"
            )
