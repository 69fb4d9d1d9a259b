"""The verifier of the task source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.base import BaseGrader


class TaskReward(RewardSettings):
    """The reward of the task source's own verifier."""

    may_judge = True
    gives: ClassVar = ("tasks-verifier",)

    kind: Literal["task"] = "task"
    steps: bool = True
    """Pass on the steps that the verifier judges, if it judges any; false leaves process rewards to another part."""

    def build(self, source: TaskSource) -> Grader:
        return source.grader() if self.steps else WithoutSteps(source.grader())


class WithoutSteps(BaseGrader):
    """The grades of another grader without their steps."""

    def __init__(self, inner: Grader) -> None:
        self.inner = inner

    def within(self) -> dict[str, Grader]:
        return {"task": self.inner}

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        return [replace(grade, steps=()) for grade in await self.inner(task, leaves, context)]
