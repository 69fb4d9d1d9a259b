"""Which format completions are in, and how often each is right: what echo-chamber watches, and pays nothing for."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, ShapingGrader, Task, TaskSource
from lyceum.papers.echo_chamber.tasks_chain_formats import Format, format_of
from lyceum.reward.base import each_with_verdict


class FormatShares(RewardSettings):
    """1 for a completion that is in one of the formats of ``chain-formats``, else 0; the share of each of them, and the
    accuracy of those in it, are logged.

    Source: Echo Chamber, arXiv:2504.07912, which counts the formats of its pre-training mixture through training.
    """

    after_verdict: ClassVar[bool] = True

    kind: Literal["formats"] = "formats"
    weight: float = 0.0
    """Weight of the number in the outcome; 0 only records it."""

    def build(self, source: TaskSource) -> ShapingGrader:
        return each_with_verdict(counted)


def counted(task: Task, leaf: Node, verdict: bool | None) -> Grade:
    found = format_of(leaf.completion)
    parts = {name: float(name == found) for name in get_args(Format)}
    if found is not None and verdict is not None:
        parts[f"right_{found}"] = float(verdict)
    return Grade(float(found is not None), parts=parts)
