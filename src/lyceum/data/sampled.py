"""Trajectories of the policy that enters the stage, sampled and graded before its first update."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field

from lyceum.core.settings import DataSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Gathering


class Sampled(DataSettings):
    """Tasks drawn by the stage's curriculum, rolled out and graded once, by the policy that enters."""

    samples: ClassVar[bool] = True
    refuses: ClassVar = ("unfinished",)

    kind: Literal["sampled"] = "sampled"
    tasks: int = Field(default=256, ge=1)
    """Number of tasks sampled; with ``max_tokens`` the maximum."""
    part: int = Field(default=64, ge=1)
    """Tasks sampled at once, then written to the run's folder: a killed run goes on after the last ones written."""

    async def parts(self, stage: Gathering) -> AsyncIterator[Sequence[Tree]]:
        for first in range(0, self.tasks, self.part):
            if stage.spent:
                return
            yield await stage.sample(min(self.part, self.tasks - first))

    def with_budget(self, trajectories: int, tokens: int) -> Self:
        return self.model_copy(update={"tasks": max(self.tasks, math.ceil(tokens / trajectories))})
