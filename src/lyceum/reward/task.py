"""The verifier of the task source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.base import BaseGrader


class TaskReward(RewardSettings):
    """The reward of the task source's own verifier."""

    may_judge = True
    gives: ClassVar = ("tasks-verifier",)

    kind: Literal["task"] = "task"
    part: str | None = Field(default=None, max_length=60)
    """The part of the verifier's grade that is paid, such as ``overlap`` of tasks ``screens``; null: its outcome."""
    absent: float | None = None
    """What a grade without that part is paid, where tasks of several sources are mixed; null: it is ungraded."""
    steps: bool = True
    """Pass on the steps that the verifier judges, if it judges any; false leaves process rewards to another part."""

    def build(self, source: TaskSource) -> Grader:
        grader = source.grader()
        return grader if self.part is None and self.steps else Changed(grader, self.paid)

    def paid(self, grade: Grade) -> Grade:
        """What is paid of the verifier's grade."""
        if not self.steps:
            grade = replace(grade, steps=())
        if self.part is None or grade.outcome is None:
            return grade
        outcome = grade.parts.get(self.part, self.absent)
        if outcome is None:
            return Grade.ungraded(f"the verifier gives no part {self.part!r}; it gives: {', '.join(grade.parts)}")
        return replace(grade, outcome=outcome, parts={})


class Changed(BaseGrader):
    """The grades of another grader, each changed."""

    def __init__(self, inner: Grader, change: Callable[[Grade], Grade]) -> None:
        self.inner, self.change = inner, change

    def within(self) -> dict[str, Grader]:
        return {"task": self.inner}

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        return [self.change(grade) for grade in await self.inner(task, leaves, context)]
