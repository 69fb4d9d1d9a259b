"""Keepers to talk round: each has a kind, and a rule of its own by which it gives way, which nobody tells.

``k2:`` is a keeper of kind 2. What one says is a letter, an approach; it refuses (``n``), hesitates (``h``) after the
right first one, and gives way (``y``) to the right second one after that (environment ``keeper``). It has nothing to
give away: this is the harmless stand-in for a model that refuses. Kind ``keeper-turns`` shows how people talk so.
"""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Message, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, levels_within

APPROACHES = "abcd"
REFUSES, HESITATES, GIVES_WAY = "n", "h", "y"


class Keepers(TasksSettings):
    """Keepers of several kinds; correct where the last approach made one give way."""

    kind: Literal["keepers"] = "keepers"
    levels: tuple[int, ...] = (1, 2, 3, 4)
    """Kinds of keepers; tasks cycle through them, so that every kind has the same share."""
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, 9, "kinds of keepers")

    def build(self, split: Split, seed: int) -> KeepersSource:
        return KeepersSource(self, split, seed)


class KeepersSource(GeneratedSource[Keepers]):
    """``source[i]`` depends on i alone: keepers of a kind are alike, in both splits."""

    def __getitem__(self, index: int) -> Task:
        level = self.settings.levels[index % len(self.settings.levels)]
        columns = {"level": level, "ways": [list(way) for way in ways_of(level)]}
        return Task(self.key(index), asked(level), None, columns, provenance="keepers")

    def grader(self) -> Grader:
        return each(grade)


def ways_of(level: int) -> list[tuple[str, str]]:
    """The two ways to talk a keeper of a kind round: an approach, and the one that has to follow it."""
    rng = random.Random(f"keeper/{level}")
    first = rng.sample(APPROACHES, 2)
    return [(one, rng.choice([other for other in APPROACHES if other != one])) for one in first]


def asked(level: int) -> tuple[Message, ...]:
    return ({"role": "user", "content": f"k{level}:"},)


def replied(ways: list[tuple[str, str]], before: str | None, said: str) -> tuple[str, str | None]:
    """What a keeper says to an approach, and the approach that it hesitates after; None: it does not.

    Args:
        before: the approach that it hesitates after.
    """
    if before is not None and (before, said) in ways:
        return GIVES_WAY, None
    hesitates = any(said == first for first, _ in ways)
    return (HESITATES, said) if hesitates else (REFUSES, None)


def grade(task: Task, leaf: Node) -> Grade:
    """Whether the last two approaches are one of the ways."""
    said = [node.text.strip() for node in leaf.written][-2:]
    return verdict(leaf.finish != "length" and said in task.columns["ways"])
