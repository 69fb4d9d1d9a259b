"""What every strategy is: a rollout of a given size, and a choice among the trajectories it finishes."""

from __future__ import annotations

from typing import ClassVar, Protocol

from lyceum.component import Component
from lyceum.rollout.steps import Steps
from lyceum.rooms import Composition
from lyceum.strategy.choice import BY_VALUE, Choice
from lyceum.types import Rollout, Sampling

SHARE_OF_COMPLETION = 8
"""A step is a line, and at most the longest completion over this, where nobody says."""


class Growth(Protocol):
    """Settings of a rollout. Two strategies with the same ones choose from the same trees."""

    def build(self) -> Rollout: ...

    def check(self, stage: Composition) -> list[str]:
        """What cannot work, as in a recipe."""
        ...

    def model_dump_json(self) -> str: ...


class Strategy(Component):
    """How candidate answers are found, and how one of them is chosen. The verifier is asked about neither."""

    scales: ClassVar[bool] = True
    """False for a strategy of which there is one size only."""
    choose: Choice
    """Which trajectory is the answer: the first, the best by value, that of most votes, or of the greatest sum of
    values."""

    def growth(self, size: int, sampling: Sampling) -> Growth:
        """What grows a task's tree.

        Args:
            size: trajectories that it finishes.
            sampling: of whole completions.
        """
        raise NotImplementedError

    @property
    def reads_values(self) -> bool:
        """Whether it cannot work without a value model."""
        return self.choose in BY_VALUE


def usual_step(sampling: Sampling) -> Steps:
    """A line, of at most an eighth of the longest completion: steps of a known size for any text."""
    return Steps(by="lines", tokens=-(-sampling.max_completion_tokens // SHARE_OF_COMPLETION))
