"""How often a completion contains a text, as a metric: a phrase of reflection, of backtracking, of giving up."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, ShapingGrader, Task, TaskSource
from lyceum.reward.base import each_with_verdict


class Occurrences(RewardSettings):
    """The number of times that a text occurs in a completion, and the accuracy with and without it.

    ASTRO, arXiv:2507.00417, tracks the number of backtracks through training, beside accuracy.
    """

    after_verdict: ClassVar[bool] = True

    kind: Literal["occurrences"] = "occurrences"
    text: str = Field(min_length=1)
    """Text to count; overlapping occurrences count once."""
    weight: float = 0.0
    """Weight of the count in the outcome (outcome per occurrence); 0 only records it."""

    def build(self, source: TaskSource) -> ShapingGrader:
        return each_with_verdict(self._grade)

    def _grade(self, task: Task, leaf: Node, verdict: bool | None) -> Grade:
        count = leaf.completion.count(self.text)
        where = "right_with" if count else "right_without"
        return Grade(float(count), parts={} if verdict is None else {where: float(verdict)})
