"""Passages to be ranked by how relevant they are to a query, where both are numbers: the nearer, the more relevant.

``48?a37,b44,c46=`` is answered ``a11,b4,c2#c>b>a``: how far each passage is from the query, then all of them in order
after ``#``. The level is the number of passages. Those that are nearer than ``relevant_within`` are relevant, the
nearest most; there is always one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, draw, levels_within

NAMES = "abcdefghij"
NUMBERS = range(100)


class Rankings(TasksSettings):
    """Numbered passages to put in order, with ``columns["order"]``, ``columns["relevance"]`` and a demonstration."""

    kind: Literal["rankings"] = "rankings"
    levels: tuple[int, ...] = (3, 4, 5)
    """Numbers of passages; tasks cycle through them, so that every level has the same share."""
    relevant_within: int = Field(default=10, ge=1, le=100)
    """Distance from the query below which a passage is relevant."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(2, len(NAMES), "numbers of passages")

    def build(self, split: Split, seed: int) -> RankingsSource:
        return RankingsSource(self, split, seed)


class RankingsSource(GeneratedSource[Rankings]):
    """``source[i]`` depends on (seed, split, i) alone. A problem always belongs to one split, whatever the seed."""

    def __getitem__(self, index: int) -> Task:
        id, level = self.key(index), self.settings.levels[index % len(self.settings.levels)]
        return draw(
            id,
            self.split,
            lambda rng: make_task(id, *_drawn(rng, level), self.settings.relevant_within),
            problem=lambda task: str(task.messages[-1]["content"]),
        )

    def grader(self) -> Grader:
        return each(lambda task, leaf: grade(task, leaf))


def _drawn(rng: random.Random, level: int) -> tuple[int, list[int]]:
    """A query and passages of different distances."""
    while True:
        query, passages = rng.choice(NUMBERS), rng.sample(NUMBERS, level)
        if len({abs(number - query) for number in passages}) == level:
            return query, passages


def make_task(id: str, query: int, passages: Sequence[int], relevant_within: int) -> Task | None:
    """None where no passage is relevant."""
    names = NAMES[: len(passages)]
    distance = {name: abs(number - query) for name, number in zip(names, passages, strict=True)}
    order = sorted(names, key=distance.__getitem__)
    relevant = [name for name in order if distance[name] < relevant_within]
    if not relevant:
        return None
    columns = {
        "level": len(passages),
        "order": order,
        "relevance": {name: len(relevant) - n for n, name in enumerate(relevant)},
        "demonstration": f"{','.join(f'{name}{distance[name]}' for name in names)}#{'>'.join(order)}",
    }
    listed = ",".join(f"{name}{number}" for name, number in zip(names, passages, strict=True))
    prompt = f"{query}?{listed}="
    return Task(id, ({"role": "user", "content": prompt},), ">".join(order), columns, provenance="rankings")


def grade(task: Task, leaf: Node) -> Grade:
    """1 where the whole order is right, else 0; truncated ones are never."""
    found = ranked(leaf, task.columns["order"])
    return verdict(found == task.columns["order"], answered=found is not None)


def ranked(leaf: Node, passages: Sequence[str]) -> list[str] | None:
    """The order after the ``#`` of a completion; None where it is not every passage once, with ``>`` between them."""
    _, mark, answer = leaf.completion.partition("#")
    order = answer.strip().split(">")
    return order if mark and leaf.finish != "length" and sorted(order) == sorted(passages) else None
