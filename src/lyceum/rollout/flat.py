"""Flat groups: independent samples of the task's prompt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lyceum.core.settings import RolloutSettings, Size
from lyceum.core.tree import Tree
from lyceum.core.types import Context, Rollout, Sampling, Task
from lyceum.rollout._growth import affordable, at_most


class Flat(RolloutSettings):
    """Independent samples of one prompt, graded together; shorter if the task's budget is short."""

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

    async def roll(self, task: Task, context: Context) -> Tree:
        tree = context.tree(task)
        samples = task.samples or self.samples
        sampling = at_most(self.sampling, affordable(self.sampling, samples, context))
        leaves = await context.extend(tree.root, samples, sampling)
        await context.grade(leaves)
        return tree
