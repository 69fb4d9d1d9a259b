"""How often a completion contains a text, as a metric: a phrase of reflection, of backtracking, of giving up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, ShapingGrader, Task, TaskSource


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
        return self.score

    async def score(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        return [self._grade(leaf, verdict) for leaf, verdict in zip(leaves, verdicts, strict=True)]

    def _grade(self, leaf: Node, verdict: bool | None) -> Grade:
        count = leaf.completion.count(self.text)
        where = "right_with" if count else "right_without"
        return Grade(float(count), parts={} if verdict is None else {where: float(verdict)})
