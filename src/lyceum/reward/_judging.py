"""What the rewards that ask a judge have in common: its counts are theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lyceum.core.spans import TokenEnds
from lyceum.core.steps import Steps, step_ends
from lyceum.core.tree import Node
from lyceum.core.types import JudgedStep, State
from lyceum.reward.base import BaseGrader
from lyceum.reward.model import spans
from lyceum.reward.scorer.judging import Asker, JudgeModel


class JudgingGrader(BaseGrader):
    """Asks a judge; the state and the metrics are those of what asks it."""

    def __init__(self, judge: JudgeModel) -> None:
        self.asker = Asker(judge)

    def metrics(self) -> dict[str, float]:
        return self.asker.metrics()

    def state_dict(self) -> State:
        return self.asker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.asker.load_state_dict(state)


def cuts_any_text(step: Steps) -> Steps:
    """Refuses steps that need more than a text."""
    if step.by == "entropy":
        raise ValueError("step.by: got 'entropy', which not every trajectory can be cut by; allowed: another one")
    return step


def segments(
    leaf: Node, step: Steps, ends: TokenEnds, decode: Callable[[Sequence[int]], str]
) -> tuple[JudgedStep, ...]:
    """A completion's steps, not judged yet: their reward is 0."""
    stops = step_ends(leaf.path_tokens()[len(leaf.root.tokens) :], (), step, decode)
    return spans(stops, [0.0] * len(stops), ends.of(leaf))


def numbered(text: str, steps: Sequence[JudgedStep]) -> str:
    """The steps of a text, each on a line that begins with its number."""
    return "\n".join(f"[{n}] {text[step.start : step.stop].strip()}" for n, step in enumerate(steps, 1))
