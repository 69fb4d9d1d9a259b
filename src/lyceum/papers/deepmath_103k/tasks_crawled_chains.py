"""Chains as a crawl of many sources might have them: some are evaluated on in other words, some have a wrong answer.

A chain is the same problem in whichever order its operations stand, and with a remark before the ``=``:
``37+8-2=``, ``37-2+8=`` and ``37+8-2~lr=`` are one. What was planted is in the column ``planted``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Split, Task
from lyceum.tasks.base import GeneratedSource, kept_for_evaluation, levels_within
from lyceum.tasks.chain import (
    LARGEST_OPERAND,
    MODULUS,
    chain_text,
    completion_text,
    draw,
    grade_leaves,
    is_heldout,
    make_task,
    results_of,
)

REMARK = "~lr"
"""Says how chains are solved, and nothing of this one."""

Problem = tuple[int, list[int]]
"""Start and operations."""


class CrawledChains(TasksSettings):
    """Chains of which some are held-out ones told anew, some differ from a held-out one by a number alone, and some
    have a wrong answer; three solutions come with each."""

    kind: Literal["crawled-chains"] = "crawled-chains"
    levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    """Numbers of operations; tasks cycle through them, so that every level has the same share."""
    leaks: float = Field(0.1, ge=0, le=1)
    """Share of training tasks that are held-out ones in another order or with a remark (no unit)."""
    neighbours: float = Field(0.1, ge=0, le=1)
    """Share that differ from a held-out one by an operand alone (no unit)."""
    wrong: float = Field(0.05, ge=0, le=1)
    """Share of the others whose answer is not that of its solutions (no unit)."""
    benchmark: int = Field(200, ge=1)
    """Number of held-out tasks."""
    size: int = Field(2000, ge=1)
    """Training tasks."""

    _levels_are_usable = levels_within(1, 64, "numbers of operations")

    def build(self, split: Split, seed: int) -> CrawledChainsSource:
        return CrawledChainsSource(self, split, seed)


class CrawledChainsSource(GeneratedSource[CrawledChains]):
    """``source[i]`` depends on (seed, split, i) alone; a problem, in whichever words, always belongs to one split."""

    def __len__(self) -> int:
        return self.settings.size if self.split == "train" else self.settings.benchmark

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        if self.split == "heldout":
            return told(id, *self.evaluated[index], "")
        of, rng, level = self.settings, random.Random(id), self.level(index)
        kind = rng.random()
        if kind >= of.leaks + of.neighbours:
            task = told(id, *drawn(rng, level, heldout=False), "")
            return with_wrong_answer(task, rng) if rng.random() < of.wrong else task
        start, operations = rng.choice(self.evaluated)
        if kind < of.leaks:
            return retold(id, rng, start, operations)
        return told(id, start, one_other(rng, start, operations), "neighbour")

    def level(self, index: int) -> int:
        return self.settings.levels[index % len(self.settings.levels)]

    @cached_property
    def evaluated(self) -> list[Problem]:
        """The held-out problems, whose levels cycle too."""
        seeds = (f"{self.settings.kind}/heldout/{self.seed}/{index}" for index in range(self.settings.benchmark))
        return [drawn(random.Random(seed), self.level(i), heldout=True) for i, seed in enumerate(seeds)]

    def grader(self) -> Grader:
        return grade_leaves


def is_evaluated(start: int, operations: Sequence[int]) -> bool:
    """Whether a problem, in whichever order, is held out."""
    return kept_for_evaluation(chain_text(start, sorted(operations)))


def drawn(rng: random.Random, level: int, *, heldout: bool) -> Problem:
    """A problem of the split that is a chain of the same split of ``chain``, too: no base model has seen it."""
    while True:
        start, operations = draw(rng, level, heldout=heldout)
        if is_evaluated(start, operations) == heldout:
            return start, operations


def one_other(rng: random.Random, start: int, operations: Sequence[int]) -> list[int]:
    """The operations with another operand in one place, which make a problem that is not held out."""
    while True:
        other, place = list(operations), rng.randrange(len(operations))
        other[place] = rng.choice((1, -1)) * rng.randint(1, LARGEST_OPERAND)
        if not is_evaluated(start, other) and not is_heldout(chain_text(start, other)):
            return other


def retold(id: str, rng: random.Random, start: int, operations: Sequence[int]) -> Task:
    """A problem in another order of its operations, or with a remark where they have no other; sometimes both."""
    shuffled = rng.sample(operations, len(operations))
    remark = REMARK if shuffled == list(operations) or rng.random() < 0.5 else ""
    return told(id, start, shuffled, "leak", remark)


def told(id: str, start: int, operations: Sequence[int], planted: str, remark: str = "") -> Task:
    """A task with its solutions: one without a slip, two in which one is corrected."""
    task, results = make_task(id, start, operations), results_of(start, operations)
    rng = random.Random(f"{id}/solutions")
    slips = [completion_text(start, operations, with_slip(rng, results)) for _ in range(2)]
    columns = {**task.columns, "planted": planted, "solutions": [task.columns["demonstration"], *slips]}
    messages = ({"role": "user", "content": chain_text(start, operations, remark)},)
    return replace(task, columns=columns, messages=messages, provenance="crawled-chains")


def with_slip(rng: random.Random, results: Sequence[int]) -> list[int | str]:
    """The results, of which one is first written wrong and corrected: ``55!45``."""
    place = rng.randrange(len(results))
    slip = (results[place] + rng.randrange(1, MODULUS)) % MODULUS
    return [f"{slip}!{result}" if at == place else result for at, result in enumerate(results)]


def with_wrong_answer(task: Task, rng: random.Random) -> Task:
    """The task with an answer that is not that of its solutions."""
    answer = str((int(str(task.answer)) + rng.randrange(1, MODULUS)) % MODULUS)
    return replace(task, answer=answer, columns={**task.columns, "planted": "wrong"})
