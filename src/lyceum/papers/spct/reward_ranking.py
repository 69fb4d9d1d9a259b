"""1 where a judge's points put the best answer first, as the data say, else -1: the rule that trains judges (SPCT)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.sources import checked_tasks
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each
from lyceum.reward.judge import labels_of, ranks_as, read_points
from lyceum.utils.errors import RecipeError

CHECKED = 64
"""Number of tasks whose labels are looked for before a model is loaded; for a dataset all."""


class Ranking(RewardSettings):
    """1 for a judgement whose last line, ``scores: 7, 3``, gives the best answer more points than every other one; for
    that of a single answer, its label. -1 for another one, also where it is truncated or has no such line.

    The task's prompt shows a judge one or more answers, and its column has their labels in order, a number each.
    ``chain-judgements`` with form ``scores`` has them, and so may a dataset of preferences.

    Source:
        SPCT, arXiv:2504.02495, section 3 (rule-based online RL), as public summaries tell it: no reward of the format.
    """

    kind: Literal["ranking"] = "ranking"
    column: str = Field("labels", min_length=1, max_length=200)
    """Column with the label of each answer that the prompt shows; the best answer has the highest one."""
    most_points: int = Field(10, ge=1, le=1000)
    """The points of the best answer; a judgement that gives more is wrong."""

    def check_tasks(self, source: TaskSource) -> None:
        """Refuse tasks of which none has labels, or one has labels that rank nothing."""
        looked_at = [source[index] for index in checked_tasks(source, CHECKED)]
        labelled = [task for task in looked_at if self.column in task.columns]
        for task in labelled:
            try:
                labels_of(task, self.column)
            except ValueError as error:
                raise RecipeError(f"reward.ranking: {error}") from None
        if looked_at and not labelled:
            raise RecipeError(
                f"reward.ranking.column: no task has a column {self.column!r}; allowed: tasks whose prompt shows "
                "answers, with a label for each (chain-judgements with form scores), or another reward"
            )

    def build(self, source: TaskSource) -> Grader:
        self.check_tasks(source)
        return each(self.score)

    def score(self, task: Task, leaf: Node) -> Grade:
        try:
            labels = labels_of(task, self.column)
        except ValueError as error:
            return Grade.ungraded(str(error))
        points = read_points(task, leaf, len(labels), self.most_points)
        right = points is not None and ranks_as(points, labels)
        return Grade(
            1.0 if right else -1.0, right, parts={"read": float(points is not None)}, answered=points is not None
        )
