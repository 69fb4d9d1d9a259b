"""ADCL, adaptive difficulty curriculum learning: from easy to hard, each window re-sorted by accuracy measured anew."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import CurriculumSettings
from lyceum.core.types import Task, TaskSource
from lyceum.curriculum._rounds import Tested, TestedRounds
from lyceum.curriculum.base import categories_of, category_of, epoch_order
from lyceum.models.policy import Policy
from lyceum.utils.numbers import level_order


class Resorted(CurriculumSettings):
    """From easy to hard by a difficulty known beforehand; each window of tasks is sorted again, by the accuracy of the
    current policy, before it is trained on.

    Source: ADCL, arXiv:2505.08364. There the difficulty known beforehand is the first policy's accuracy too.
    """

    kind: Literal["resorted"] = "resorted"
    by: str | None = "level"
    """Column with the difficulty known beforehand; null keeps the shuffled order of the source."""
    window: int = Field(default=160, ge=1)
    """Tasks that are tested and sorted together, in whole steps."""
    tests: int = Field(default=4, ge=0)
    """Samples per tested task; 0 tests nothing and keeps the order known beforehand."""

    def check_tasks(self, source: TaskSource) -> None:
        """Refuse tasks without that column."""
        if self.by is not None:
            categories_of(source, self.by)

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> ResortedCurriculum:
        return ResortedCurriculum(self, source, seed=seed)


class ResortedCurriculum(TestedRounds):
    """Its state: that of the rounds, and the window's tasks in their new order."""

    def __init__(self, settings: Resorted, source: TaskSource, *, seed: int) -> None:
        super().__init__(source, pool=settings.window, tests=settings.tests, seed=seed)
        self.settings = settings
        self.waiting: list[int] = []
        self.moved = 0
        self._epoch: tuple[int, list[int]] = -1, []
        """The number of the epoch last asked for, and its order."""

    @cached_property
    def levels(self) -> list[tuple[float, str]] | None:
        by = self.settings.by
        if by is None:
            return None
        return [level_order(category_of(self.source[index], by)) for index in range(len(self.source))]

    def index_at(self, position: int) -> int:
        epoch, place = divmod(position, len(self.source))
        if epoch != self._epoch[0]:
            self._epoch = epoch, self._in_order(epoch)
        return self._epoch[1][place]

    def _in_order(self, epoch: int) -> list[int]:
        order = [int(index) for index in epoch_order(self.seed, epoch, len(self.source))]
        levels = self.levels
        return order if levels is None else sorted(order, key=lambda index: levels[index])

    def draw(self, n: int) -> list[Task]:
        if self.settings.tests:
            return super().draw(n)
        first, self.position = self.position, self.position + n
        return [self.source[self.index_at(position)] for position in range(first, self.position)]

    def begin(self, tested: list[Tested]) -> None:
        easiest_first = sorted(tested, key=lambda each: -each.accuracy)
        self.moved = sum(now is not before for now, before in zip(easiest_first, tested, strict=True))
        self.waiting += [each.index for each in easiest_first]

    def train(self, n: int) -> list[Task]:
        chosen, self.waiting = self.waiting[:n], self.waiting[n:]
        return [self.source[index] for index in chosen]

    def metrics(self) -> dict[str, float]:
        """``moved/tasks``: of the latest window, those that stand at another place than beforehand."""
        return {**super().metrics(), "moved/tasks": float(self.moved), "waiting/tasks": float(len(self.waiting))}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "waiting": list(self.waiting), "moved": self.moved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.waiting, self.moved = [int(index) for index in state["waiting"]], int(state["moved"])
        self._epoch = -1, []  # it was of another seed
