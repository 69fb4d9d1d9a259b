"""Progressive filtering: rounds over the tasks whose direct samples still mostly fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Task, TaskSource
from lyceum.curriculum.base import FromSource, epoch_order, success
from lyceum.models.policy import Policy


@dataclass(frozen=True)
class DirectSamples(Note):
    """Plain samples of a task whose trajectories come from a search. Written by the guide ``search-where-hard``.

    Attributes:
        accuracy: their accuracy; None where none were drawn, or none could be graded.
    """

    kind: ClassVar[str] = "direct"
    accuracy: float | None

    def in_table(self) -> float | None:
        return self.accuracy


class HardFilter(CurriculumSettings):
    """Tasks in rounds: tasks found easy in a round are not drawn in the next.

    Source: DeepSearch, arXiv:2509.25454, section 4.1. There each round is a separate run, before which every task is
    tested; here a task is judged by the samples of its own turn in the round.
    """

    gives: ClassVar = ("end",)
    kind: Literal["hard-filter"] = "hard-filter"
    hard: float = Field(default=0.25, ge=0, lt=1)
    """Maximum accuracy of its direct samples at which a task stays (no unit)."""
    pool: int | None = Field(default=None, ge=1)
    """Tasks of the first round; null takes all of the source."""
    least: int = Field(default=32, ge=1)
    """Minimum tasks of a round; with fewer left, ``pool`` further ones that were not drawn yet are added."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> HardFilterCurriculum:
        return HardFilterCurriculum(self, source, seed=seed)


class HardFilterCurriculum(FromSource):
    """Its state: the round's tasks, its position in them, and which of them were found easy."""

    kept = ("round", "position", "joined", "active", "easy")

    def __init__(self, settings: HardFilter, source: TaskSource, *, seed: int) -> None:
        super().__init__(source, seed=seed)
        self.settings = settings
        self.round = self.position = self.joined = 0
        self.active: list[int] = []
        self.easy: dict[str, bool] = {}
        self._join()

    @property
    def done(self) -> str:
        """The next round would begin again with tasks that were found easy."""
        # ``easy`` holds only tasks of this round; going through all tasks of a large source would take long.
        left, size = len(self.active) - sum(self.easy.values()), len(self.source)
        # Of fewer tasks than a round's minimum the next round has all again in any case.
        if self.joined < size or left >= (self.settings.least if self.settings.least <= size else 1):
            return ""
        return f"of all {size} tasks {left} are left for another round"

    def draw(self, n: int) -> list[Task]:
        return [self._next() for _ in range(n)]

    def _next(self) -> Task:
        if self.position == len(self.active):
            self._next_round()
        place = int(epoch_order(self.seed, self.round, len(self.active))[self.position])
        self.position += 1
        return self.source[self.active[place]]

    def _next_round(self) -> None:
        # A task without a result yet (drawn in this step, or never graded) stays.
        self.active = [index for index in self.active if not self.easy.get(self.source[index].id, False)]
        self.easy = {}
        self.round, self.position = self.round + 1, 0
        if len(self.active) < self.settings.least:
            self._join()

    def _join(self) -> None:
        """Add further tasks of the source; once all were drawn, it starts over."""
        size = len(self.source)
        count = min(self.settings.pool or size, size - len(self.active))
        have = set(self.active)
        while count:
            index = self.joined % size
            self.joined += 1
            if index not in have:
                self.active.append(index)
                count -= 1

    def observe(self, trees: Sequence[Tree]) -> None:
        for tree in trees:
            direct = tree.note(DirectSamples)
            rate = success(tree) if direct is None else direct.accuracy
            if rate is not None:
                self.easy[tree.task.id] = rate > self.settings.hard

    def metrics(self) -> dict[str, float]:
        return {
            "round": float(self.round),
            "tasks/round": float(len(self.active)),
            "easy/found": float(sum(self.easy.values())),
        }
