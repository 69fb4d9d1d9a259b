"""What the environment paid for the turns of a trajectory."""

from __future__ import annotations

from typing import Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.types import Grade, Grader, TaskSource
from lyceum.reward.base import each


class EnvironmentReward(RewardSettings):
    """The sum of the rewards of a trajectory's turns, in the environment's unit."""

    kind: Literal["environment"] = "environment"

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: Grade(sum(node.reward for node in leaf.path())))
