"""A reward of which an untrained model's samples differ: rewards that are all the same end a run with an exit code."""

from typing import Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.types import Grade, Grader, TaskSource
from lyceum.reward.base import each


class Letters(RewardSettings):
    """A number made of a completion's characters, never right."""

    kind: Literal["test-letters"] = "test-letters"

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: Grade(sum(map(ord, leaf.completion)) % 7 / 7, correct=False))
