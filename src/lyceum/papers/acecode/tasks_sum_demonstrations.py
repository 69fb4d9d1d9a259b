"""Programs to imitate, mostly loops and some of them wrong: correctness and efficiency are left to be taught."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Split, Task
from lyceum.papers.acecode.tasks_sums import SumSource, formula, loop


class SumDemonstrations(TasksSettings):
    """The same sums with a program to imitate in ``columns["demonstration"]``, correct or not."""

    kind: Literal["sum-demonstrations"] = "sum-demonstrations"
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split."""
    wrong: float = Field(default=0.2, ge=0, le=1)
    """Probability that the number is one too large: the program is then never correct."""
    formula: float = Field(default=0.3, ge=0, le=1)
    """Probability that the program is the formula; else it is the loop."""

    def build(self, split: Split, seed: int) -> SumDemonstrationSource:
        return SumDemonstrationSource(self, split, seed)


class SumDemonstrationSource(SumSource):
    """``source[i]`` depends on (seed, split, i) alone; its problems have the same splits as kind ``sums``."""

    def __init__(self, settings: SumDemonstrations, split: Split, seed: int) -> None:
        super().__init__(settings.kind, settings.size, split, seed)
        self.settings = settings

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        rng = random.Random(f"{task.id}/demonstration")
        factor = task.columns["factor"] + (rng.random() < self.settings.wrong)
        written = formula if rng.random() < self.settings.formula else loop
        return replace(task, columns={**task.columns, "demonstration": written(factor)})
