"""Flat groups: independent samples of the task's prompt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lyceum.core.settings import RolloutSettings, Size
from lyceum.core.tree import Node
from lyceum.core.types import Context, Rollout, Sampling
from lyceum.rollout._growth import affordable


class Flat(RolloutSettings):
    """Independent samples of one prompt; shorter if the task's budget is short."""

    kind: Literal["flat"] = "flat"
    samples: int = Field(8, ge=1)
    """Completions per task, unless the curriculum sets the number."""
    sampling: Sampling = Sampling()
    """How tokens are sampled."""

    @property
    def size(self) -> Size:
        return Size("samples", self.samples)

    def sized(self, n: int) -> Flat:
        """The same rollout with ``n`` trajectories."""
        return self.model_copy(update={"samples": n})

    def build(self) -> Rollout:
        return self.roll

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        samples = n or self.samples
        return await context.extend(start, samples, affordable(self.sampling, start, samples, context))
