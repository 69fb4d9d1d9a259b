"""A reward that falls off with the distance from the right time or number, by a rate that follows the training."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from lyceum.core.component import Settings
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.extract import WHOLE, Extract
from lyceum.reward.number import last_number, to_number
from lyceum.utils.errors import RecipeError, nearest

_MONTH = re.compile(r"(?<!\d)(\d{4})-(0[1-9]|1[0-2])(?!\d)")


class Lenient(Settings):
    """Another rate for hard tasks, which becomes stricter over a stage."""

    column: str = Field("level", min_length=1)
    """Column with a task's difficulty, a number."""
    hard_from: float = 5.0
    """Difficulty from which a task is hard."""
    start: float = Field(0.07, ge=0, le=1000)
    """Rate of hard tasks at the beginning of the stage."""
    end: float = Field(0.07, ge=0, le=1000)
    """Rate of hard tasks after ``steps``; a straight line between both."""
    steps: int = Field(50, ge=1, le=10**9)
    """Steps of the stage until then."""

    def alpha(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(1.0, step / self.steps)


class Distance(RewardSettings):
    """exp(-alpha |found - answer|): 1 for the right answer, less the farther away it is, 0 where there is none.

    Source:
        Time-R1, arXiv:2505.13508; the authors' code (``reward_score/time_reasoning.py``, ``main_ppo_s1_p3.py``).
    """

    kind: Literal["distance"] = "distance"
    unit: Literal["number", "month"] = "number"
    """What is compared: the last number of the answer, or its last month, written 2026-01, counted in months."""
    extract: Extract = WHOLE
    """Where to find the answer in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""
    alpha: float = Field(0.1, ge=0, le=1000)
    """Rate at which the reward falls off (per unit): at a distance of 7 and 0.1 it is a half."""
    period: float | None = Field(None, gt=0)
    """Length of a circle that is counted around (12 for months of any year); null: a straight line."""
    lenient: Lenient | None = None
    """Another rate for hard tasks; null: one for all."""

    @model_validator(mode="after")
    def _hard_tasks_are_not_stricter(self) -> Distance:
        if self.lenient is not None and max(self.lenient.start, self.lenient.end) > self.alpha:
            raise ValueError(
                f"lenient: got {self.lenient.start:g} to {self.lenient.end:g} for hard tasks, and alpha is "
                f"{self.alpha:g}; allowed: at most that"
            )
        return self

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        task = source[0]
        if self.place(task.answer) is None:
            written = "a number" if self.unit == "number" else "a month such as 2026-01"
            raise RecipeError(
                f"reward.distance.unit: got {self.unit!r}, but the answer {task.answer!r} of task {task.id!r} is not "
                f"{written}; allowed: tasks whose answers are"
            )
        if self.lenient is not None and not _is_number(task.columns.get(self.lenient.column)):
            column = self.lenient.column
            raise RecipeError(
                f"reward.distance.lenient.column: got {column!r}{nearest(column, task.columns)}, in which task "
                f"{task.id!r} has no number; allowed: a column with each task's difficulty"
            )

    def build(self, source: TaskSource) -> Grader:
        return self.grade

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        alpha = self.rate(task, context.step)
        return [self.score(task, leaf, alpha) for leaf in leaves]

    def rate(self, task: Task, step: int) -> float:
        """alpha of a task at a step of the stage."""
        if self.lenient is None:
            return self.alpha
        difficulty = task.columns.get(self.lenient.column, 0)
        hard = _is_number(difficulty) and difficulty >= self.lenient.hard_from
        return self.lenient.alpha(step) if hard else self.alpha

    def score(self, task: Task, leaf: Node, alpha: float) -> Grade:
        right, answered = self.place(task.answer), self.extract.answered(leaf.completion)
        if right is None:
            return Grade.ungraded(f"the answer {task.answer!r} of task {task.id!r} is no {self.unit}")
        found = self.found(self.extract(leaf.completion) or "")
        if found is None:
            return Grade(0.0, False, parts={"alpha": alpha}, answered=answered)
        apart = distance(found, right, self.period)
        return Grade(math.exp(-alpha * apart), apart == 0, parts={"alpha": alpha, "distance": apart}, answered=answered)

    def place(self, answer: Any) -> float | None:
        """Where a task's answer lies; None where it is none."""
        if self.unit == "month":
            found = _MONTH.fullmatch(answer.strip()) if isinstance(answer, str) else None
            return None if found is None else months(found)
        number = to_number(answer)
        return None if number is None else finite(float(number))

    def found(self, text: str) -> float | None:
        """Where the last answer in a text lies."""
        if self.unit == "month":
            every = list(_MONTH.finditer(text))
            return months(every[-1]) if every else None
        number = last_number(text)
        return None if number is None else finite(float(number))


def months(found: re.Match[str]) -> float:
    """Months since the year 0."""
    return 12.0 * int(found[1]) + int(found[2])


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def distance(a: float, b: float, period: float | None) -> float:
    """|a - b|, or the shorter way around a circle."""
    apart = abs(a - b)
    if period is None or not math.isfinite(apart):
        return apart
    apart = math.fmod(apart, period)
    return min(apart, period - apart)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
