"""Which of two sums is more? In words, for a pretrained model; either answer is right half the time by luck.

``Which is more, 23+48 or 37+29? ...`` is answered ``23+48=71, 37+29=66 # first``. The verdict is of the last word
alone: a wrong sum often leaves it right. Whether each sum holds, the tasks' own rule says (``judged_steps``), for
measuring.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, JudgedStep, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, draw, levels_within

PROMPT = "Which is more, {first} or {second}? Work out both sums, then write # and first or second."
SIDES = ("first", "second")
LARGEST = {1: (9, 9), 2: (49, 9), 3: (49, 49)}
"""Level -> the largest first and second number of a sum."""
_SUM = re.compile(r"(\d{1,9}) ?\+ ?(\d{1,9}) ?= ?(\d{1,9})")
Sum = tuple[int, int]


class SumCompare(TasksSettings):
    """Two sums of which the larger is asked for; the answer, ``first`` or ``second``, comes after ``#``."""

    kind: Literal["sum-compare"] = "sum-compare"
    levels: tuple[int, ...] = (1, 2, 3)
    """Sums of two digits (1), of a number up to 49 and a digit (2), of two numbers up to 49 (3); tasks cycle through
    them."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(min(LARGEST), max(LARGEST), "levels")

    def build(self, split: Split, seed: int) -> SumCompareSource:
        return SumCompareSource(self, split, seed)


class SumCompareSource(GeneratedSource[SumCompare]):
    """``source[i]`` depends on (seed, split, i) alone. A pair of sums is always in the same split."""

    def __getitem__(self, index: int) -> Task:
        level = self.settings.levels[index % len(self.settings.levels)]
        id = self.key(index)
        # The same two sums in the other order are the same problem.
        task = draw(id, self.split, lambda rng: make_task(rng, level), problem=lambda task: str(sorted(sums_of(task))))
        return replace(task, id=id)

    def grader(self) -> Grader:
        return each(grade)

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        """Each sum that stands, and the answer: right where it follows from the two sums as they were written.

        A sum that is written once more replaces the one before it: a slip that was corrected counts as right.
        """
        asked = [tuple(sorted(each)) for each in sums_of(task)]
        standing: dict[tuple[int, ...], tuple[int, int]] = {}  # sum -> end in characters, written result
        reasoning, mark, answer = completion.partition("#")
        for found in _SUM.finditer(reasoning):
            standing[tuple(sorted((int(found[1]), int(found[2]))))] = found.end(), int(found[3])
        judged = [(end, key in asked and sum(key) == result) for key, (end, result) in standing.items()]
        judged.sort()
        if mark:
            results = [standing[key][1] for key in asked if key in standing]
            follows = len(results) == len(SIDES) and answer.strip() == larger(*results)
            judged.append((len(completion), follows))
        starts = (0, *(end for end, _ in judged))
        return tuple(JudgedStep(start, end, float(right)) for start, (end, right) in zip(starts, judged, strict=False))


def make_task(rng: random.Random, level: int) -> Task | None:
    """None where the sums are equal: neither is more."""
    first, second = ((rng.randint(1, LARGEST[level][0]), rng.randint(1, LARGEST[level][1])) for _ in SIDES)
    answer = larger(sum(first), sum(second))
    if answer is None:
        return None
    written = [f"{a}+{b}" for a, b in (first, second)]
    columns = {
        "level": level,
        "sums": [list(first), list(second)],
        "demonstration": f"{written[0]}={sum(first)}, {written[1]}={sum(second)} # {answer}",
    }
    content = PROMPT.format(first=written[0], second=written[1])
    return Task("", ({"role": "user", "content": content},), answer, columns, provenance="sum-compare")


def sums_of(task: Task) -> list[Sum]:
    return [(a, b) for a, b in task.columns["sums"]]


def larger(first: int, second: int) -> str | None:
    """Which one is more; None where they are equal."""
    return None if first == second else SIDES[second > first]


def grade(task: Task, leaf: Node) -> Grade:
    """1 where the word after ``#`` names the larger sum, else 0; truncated ones are never correct."""
    answer = leaf.completion.partition("#")[2].strip()
    return verdict(leaf.finish != "length" and answer == task.answer, answered=answer in SIDES)
