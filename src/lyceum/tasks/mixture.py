"""Several task sources as one, weighted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from lyceum.core.component import Settings, slot
from lyceum.core.settings import TasksSettings
from lyceum.core.solution import Solution
from lyceum.core.sources import Reproducible
from lyceum.core.tree import Node
from lyceum.core.types import (
    Grade,
    Grader,
    GradingContext,
    Hint,
    Split,
    Task,
    TaskSource,
)
from lyceum.reward.base import BaseGrader
from lyceum.tasks.base import Source, check_index
from lyceum.utils.errors import RecipeError, errors_name

PATTERN = 1000
"""Tasks after which the order of the sources repeats; shares are exact to one in this many."""


class MixturePart(Settings):
    """One source of a mixture."""

    tasks: Annotated[TasksSettings, slot("tasks")]
    """The source."""
    weight: float = Field(1.0, gt=0)
    """Sampling weight, relative to the other weights (no unit)."""


class Mixture(TasksSettings):
    """Tasks of several sources in turn, in proportion to their weights."""

    kind: Literal["mixture"] = "mixture"
    parts: tuple[MixturePart, ...] = Field(min_length=1)
    """The sources with their weights."""
    size: int | None = Field(None, ge=1, le=100_000_000)
    """Tasks in each split; null takes as many as all sources have. A source with too few repeats."""

    def check_paths(self) -> None:
        for number, part in enumerate(self.parts):
            with errors_name(f"tasks.parts.{number}.tasks", "tasks"):
                part.tasks.check_paths()

    def paths(self) -> frozenset[str]:
        return frozenset().union(*(part.tasks.paths() for part in self.parts))

    def whole(self, trained: Collection[str] = ()) -> Mixture:
        parts = tuple(part.model_copy(update={"tasks": part.tasks.whole(trained)}) for part in self.parts)
        return self.model_copy(update={"parts": parts})

    def build(self, split: Split, seed: int) -> MixtureSource:
        sources = list[TaskSource]()
        for number, part in enumerate(self.parts):
            with errors_name(f"tasks.parts.{number}.tasks", "tasks"):
                sources.append(part.tasks.build(split, seed))
            if not len(sources[-1]):
                raise RecipeError(f"tasks.parts.{number}: has no {split} task; allowed: a source with at least one")
        return MixtureSource(sources, [part.weight for part in self.parts], self.size)


class MixtureSource(Source):
    """A fixed pattern of sources, each read from its beginning. Ids are prefixed by the number of their source."""

    def __init__(self, sources: Sequence[TaskSource], weights: Sequence[float], size: int | None) -> None:
        self.sources, self.weights, self.given_size = sources, weights, size
        self.size = size or sum(map(len, sources))
        self.pattern = spread(weights, PATTERN)
        self._turns = Counter(self.pattern)
        seen = Counter[int]()
        self._rank = list[int]()
        for source in self.pattern:
            self._rank.append(seen[source])
            seen[source] += 1

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        check_index("mixture", index, len(self))
        turn, at = divmod(index, PATTERN)
        number = self.pattern[at]
        source = self.sources[number]
        task = source[(turn * self._turns[number] + self._rank[at]) % len(source)]
        return replace(task, id=f"{number}:{task.id}")

    @property
    def tasks_key(self) -> Hashable | None:
        keys = [source.tasks_key if isinstance(source, Reproducible) else None for source in self.sources]
        return None if None in keys else (type(self), *keys, *self.weights, self.size)

    def grader(self) -> Grader:
        return OwnGraders(self)

    def imitated(self, task: Task) -> str | None:
        source, own = self.own(task)
        return source.imitated(own)

    def hinted(self, task: Task, hint: Hint) -> Task:
        """The source's own hinted task."""
        source, own = self.own(task)
        return replace(source.hinted(own, hint), id=task.id)

    def solution(self, task: Task) -> Solution | None:
        source, own = self.own(task)
        return source.solution(own)

    def own(self, task: Task) -> tuple[TaskSource, Task]:
        number, own = numbered(task)
        return self.sources[number], own

    def with_sources(self, sources: Sequence[TaskSource]) -> MixtureSource:
        return MixtureSource(sources, self.weights, self.given_size)


def numbered(task: Task) -> tuple[int, Task]:
    """The number of a task's source in its mixture, and the task under the id that it has there."""
    number, _, id = task.id.partition(":")
    return int(number), replace(task, id=id)


class OwnGraders(BaseGrader):
    """Each task is graded by its own source's grader."""

    def __init__(self, mixture: MixtureSource) -> None:
        self.graders = [source.grader() for source in mixture.sources]

    def within(self) -> dict[str, Grader]:
        return {str(number): grader for number, grader in enumerate(self.graders)}

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        number, own = numbered(task)
        return await self.graders[number](own, leaves, context)


def spread(weights: Sequence[float], length: int) -> list[int]:
    """``length`` slots for sources in proportion to their weights, each source's spread as evenly as possible.

    Each slot goes to the source that is furthest behind its share; ties go to the first.
    """
    total = sum(weights)
    given = [0] * len(weights)
    pattern: list[int] = []
    for place in range(1, length + 1):
        behind = [weight / total * place - count for weight, count in zip(weights, given, strict=True)]
        number = max(range(len(weights)), key=lambda source: (behind[source], -source))
        given[number] += 1
        pattern.append(number)
    return pattern
