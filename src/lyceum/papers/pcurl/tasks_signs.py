"""Chains without signs: at each operation the sign has to be chosen, and one of the two is a dead end.

``3?5?8?6=`` is answered in three lines, ``3+5=8``, ``-8=0`` and ``+6=6#6``. What the prompt does not say is that every
number has to stay below ten; operands are 5 or more, so that one sign alone leads on. A demonstration often takes the
other one, and ends there: ``3-5=98#98``, since results are modulo 100. A model that has learnt from them can go on, but
does not know where to; a wrong sign shows at once, and whatever has not ended is a good beginning. The level is the
number of missing signs, all of which have to be right; the other operations have theirs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, check_levels, draw
from lyceum.tasks.chain import LARGEST_OPERAND, MODULUS, results_of

BELOW = 10
SMALLEST_OPERAND = 5


class Signs(TasksSettings):
    """Chained additions and subtractions whose signs have to be found; the level is the number of missing signs."""

    kind: Literal["signs"] = "signs"
    operations: int = Field(8, ge=1, le=32)
    """Operations per task, those with a sign included."""
    levels: tuple[int, ...] = (2, 4, 6, 8)
    """Numbers of missing signs; tasks cycle through them, so that every level has the same share."""
    right: float = Field(0.35, ge=0, le=1)
    """Probability that a demonstration takes the sign that leads on, where it is missing."""
    shows: Literal["at-once", "last"] = "at-once"
    """Where a demonstration with a wrong sign ends: right after it, or after all operations."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    @model_validator(mode="after")
    def _levels_fit(self) -> Signs:
        try:
            check_levels(self.levels, 0, self.operations, "numbers of missing signs, at most `operations`,")
        except ValueError as error:
            raise ValueError(f"levels: {error}") from error
        return self

    def build(self, split: Split, seed: int) -> SignsSource:
        return SignsSource(self, split, seed)


class SignsSource(GeneratedSource[Signs]):
    """``source[i]`` depends on (seed, split, i) alone. A problem always belongs to one split, whatever the seed."""

    def __getitem__(self, index: int) -> Task:
        level = self.settings.levels[index % len(self.settings.levels)]
        key = self.key(index)
        return draw(
            key,
            self.split,
            lambda rng: make_task(key, rng, level, self.settings),
            problem=lambda task: task.messages[-1]["content"],
        )

    def grader(self) -> Grader:
        return each(grade)


def make_operations(rng: random.Random, start: int, count: int) -> list[int]:
    """Operands that keep the number below ten with the sign they have, and not with the other."""
    operations: list[int] = []
    at = start
    for _ in range(count):
        # From 0 to 4 a sum with 5 or more may stay below ten, from 5 on a difference.
        size = rng.randint(SMALLEST_OPERAND, LARGEST_OPERAND - at if at < SMALLEST_OPERAND else at)
        operations.append(size if at < SMALLEST_OPERAND else -size)
        at += operations[-1]
    return operations


def make_task(id: str, rng: random.Random, level: int, settings: Signs) -> Task:
    start = rng.randrange(BELOW)
    operations = make_operations(rng, start, settings.operations)
    missing = set(rng.sample(range(len(operations)), level))
    taken = [o if n not in missing or rng.random() < settings.right else -o for n, o in enumerate(operations)]
    results = list(accumulate(taken, lambda at, operation: (at + operation) % MODULUS, initial=start))[1:]
    if settings.shows == "at-once":
        results = results[: next((n for n, result in enumerate(results, 1) if result >= BELOW), None)]
    shown = (f"?{abs(o)}" if n in missing else f"{o:+d}" for n, o in enumerate(operations))
    solution = completion_text(start, operations, results_of(start, operations))
    columns = {
        "level": level,
        "steps": solution.partition("#")[0].split("\n"),
        "solution": solution,
        "demonstration": completion_text(start, taken, results),
    }
    messages = ({"role": "user", "content": f"{start}{''.join(shown)}="},)
    return Task(id, messages, solution.partition("#")[2], columns, provenance="signs")


def completion_text(start: int, operations: Sequence[int], results: Sequence[int]) -> str:
    """A line for each result, and the last one again after ``#``."""
    steps = "\n".join(f"{operation:+d}={result}" for operation, result in zip(operations, results, strict=False))
    return f"{start}{steps}#{results[-1]}"


def grade(task: Task, leaf: Node) -> Grade:
    """1 for all operations with the signs that lead on and their results, else 0: a number alone could be a guess."""
    return verdict(leaf.completion == task.columns["solution"])
