"""The verifier of the task source."""

from __future__ import annotations

from typing import Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.types import Grader, TaskSource


class TaskReward(RewardSettings):
    """The reward of the task source's own verifier."""

    kind: Literal["task"] = "task"

    def build(self, source: TaskSource) -> Grader:
        return source.grader()
