"""Tree search led by a value model, every new step drawn as the first one of a whole answer (VM-MCTS)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lyceum.rollout.steps import Steps
from lyceum.rollout.value_mcts import ValueMCTS
from lyceum.strategy.base import Growth, Strategy, usual_step
from lyceum.strategy.choice import Choice
from lyceum.types import Sampling


class ValueTreeSearch(Strategy, room="strategy"):
    """The search of rollout kind ``value-mcts`` over completions: ReST-RL's decoding, arXiv:2508.19576, section 3.2."""

    kind: Literal["value-mcts"] = "value-mcts"
    choose: Choice = "best"
    """How the answer is chosen among the completions."""
    width: int = Field(default=4, ge=1)
    """Completions drawn at a step; a search of size N goes through N / width iterations, at least one."""
    depth: int = Field(default=64, ge=1)
    """Most steps of a path."""
    step: Steps | None = None
    """How paths are cut into steps; null: a line, of at most an eighth of the longest completion."""
    exploration: float = Field(default=0.2, ge=0)
    """Weight of what was seldom visited, in the unit of a value; 0.1 to 0.2 in the authors' code."""

    @property
    def reads_values(self) -> bool:
        return True

    def growth(self, size: int, sampling: Sampling) -> Growth:
        width = min(self.width, size)
        return ValueMCTS(
            iterations=max(1, size // width),
            width=width,
            depth=self.depth,
            step=self.step or usual_step(sampling),
            sampling=sampling,
            simulate="completions",
            selection="smoothed",
            exploration=self.exploration,
        )
