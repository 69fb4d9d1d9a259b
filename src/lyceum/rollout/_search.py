"""Settings that the searches over steps share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field

from lyceum.core.settings import RolloutSettings, Size
from lyceum.core.steps import Steps
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Rollout, Sampling


class SearchSettings(RolloutSettings):
    """How a tree of steps is cut and how deep it is; its size is the setting that ``sized_by`` names."""

    sized_by: ClassVar[Literal["samples", "trajectories", "iterations"]] = "trajectories"

    depth: int = Field(default=64, ge=1)
    """Maximum nodes per trajectory, without the prompt; longer ones are truncated."""
    step: Steps = Steps()
    """How trajectories are cut into nodes."""
    sampling: Sampling = Sampling()
    """How tokens are sampled; ``max_completion_tokens`` is per trajectory."""

    @property
    def size(self) -> Size:
        return Size(self.sized_by, getattr(self, self.sized_by))

    def sized(self, n: int) -> Self:
        """The same search with ``n`` of what its size counts."""
        return self.model_copy(update={self.sized_by: n})

    def build(self) -> Rollout:
        return self.roll

    @abstractmethod
    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        """The search itself: a :class:`~lyceum.core.types.Rollout`."""

    def note(self, trees: Sequence[Tree]) -> str | None:
        return self.step.unseen_in(trees)
