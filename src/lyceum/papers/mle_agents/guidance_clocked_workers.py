"""Workers that do not wait for each other: within a span of time quick actions come back more often (simulated).

Source: arXiv:2509.01684: asynchronous actors whose actions run for different times, and what that does to gradients.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, graded, notes_of
from lyceum.utils.errors import RunError
from lyceum.utils.numbers import mean


class ClockedWorkers(GuidanceSettings):
    """Of a task's samples those are trained that ``workers`` would have begun within ``seconds``, had each of them
    begun the next sample as soon as its last one had run for as long as its part ``duration`` says.

    The rollout draws the samples at once, as many as may be begun; those that were not begun have no part in anything.
    """

    kind: Literal["clocked-workers"] = "clocked-workers"
    workers: int = Field(default=4, ge=1, le=4096)
    """Programs that run at the same time."""
    seconds: float = Field(default=20.0, gt=0)
    """Time within which they begin programs, in the unit of the durations."""
    duration: str = "progress-marks/duration"
    """Part of the reward that says how long a sample ran."""

    def build(self, source: TaskSource, *, seed: int) -> ClockedWorkersGuide:
        return ClockedWorkersGuide(self)


@dataclass
class Clocked(Note):
    """What the workers did.

    Attributes:
        drawn, begun: samples, and those that a worker began.
        idle: whether the samples were used up before the time was.
        durations: of all samples that have one, in seconds.
        run: those of the samples that were begun.
    """

    kind: ClassVar[str] = "clocked-workers"
    drawn: int = 0
    begun: int = 0
    idle: bool = False
    durations: list[float] = field(default_factory=list)
    run: list[float] = field(default_factory=list)


class ClockedWorkersGuide(TaskGuide):
    """Has no state."""

    def __init__(self, settings: ClockedWorkers) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        leaves = await rollout(context, start, n)
        await context.grade(leaves)
        timed = graded(leaves)
        durations = [self.duration(leaf) for leaf in timed]
        taken, idle = begun(durations, self.settings.workers, self.settings.seconds)
        run = durations[:taken]
        context.tree.add_note(Clocked(len(leaves), taken, idle, durations, run))
        return timed[:taken]

    def duration(self, leaf: Node) -> float:
        parts = leaf.grade.parts if leaf.grade is not None else {}
        if self.settings.duration not in parts:
            raise RunError(
                f"guidance.duration: a sample has no part {self.settings.duration!r}; allowed: one of "
                f"{', '.join(parts)}"
            )
        return parts[self.settings.duration]

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Clocked)]
        metrics: dict[str, float] = {
            "samples/drawn": sum(note.drawn for note in notes),
            "samples/begun": sum(note.begun for note in notes),
            "samples/not_begun": sum(note.drawn - note.begun for note in notes),
            "workers/idle": sum(note.idle for note in notes),
        }
        drawn, run = ([one for note in notes for one in getattr(note, name)] for name in ("durations", "run"))
        if run:
            metrics["duration/drawn"], metrics["duration/begun"] = mean(drawn), mean(run)
        self._metrics = metrics


def begun(durations: Sequence[float], workers: int, seconds: float) -> tuple[int, bool]:
    """How many samples, in their order, workers begin within a time, and whether they were used up before.

    The next sample goes to the worker that is free first. With one worker, 20 seconds and durations 3, 19, 3 the first
    two are begun, at 0 and 3; the third would be at 22.

    Args:
        durations: of the samples, in seconds.
        workers: who run them, all free at 0.
        seconds: at this time nothing is begun any more.
    """
    free = [0.0] * workers
    for count, duration in enumerate(durations):
        at = heapq.heappop(free)
        if at >= seconds:
            return count, False
        heapq.heappush(free, at + duration)
    return len(durations), min(free) < seconds
