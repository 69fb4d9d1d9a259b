"""What the rewards that ask a judge have in common: its counts are theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lyceum.core.types import State
from lyceum.reward.base import BaseGrader
from lyceum.scorer.judging import Asker, JudgeModel


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
