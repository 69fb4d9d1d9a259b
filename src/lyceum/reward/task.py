"""The verifier that the tasks bring along."""

from __future__ import annotations

from typing import Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.types import Grader, TaskSource


class TaskReward(RewardSettings):
    """What the task source's own verifier says."""

    kind: Literal["task"] = "task"

    def build(self, source: TaskSource) -> Grader:
        return source.grader()
