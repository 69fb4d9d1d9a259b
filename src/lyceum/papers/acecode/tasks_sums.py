"""Sums to write as programs, where the plain right one is many times dearer to run than another (``code-efficiency``).

``37*i, i<x:`` asks for the sum of that over ``i`` below ``x``. What ``f(x)`` returns may be a loop, ``sum(37*i for i in
range(x))``, whose cost grows with ``x``, or a formula, ``37*x*(x-1)//2``, whose cost does not.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Split, Task
from lyceum.reward.code import Code
from lyceum.tasks.base import Source, check_index, draw

INPUTS = (0, 1, 2, 40)
"""What the tests call a function with: the last makes the loop dear."""
FACTORS = (2, 99)


class Sums(TasksSettings):
    """Sums of multiples of one number, below a bound, as functions of the bound."""

    kind: Literal["sums"] = "sums"
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split; there are 98 problems, of which about a tenth are held out."""

    def build(self, split: Split, seed: int) -> SumSource:
        return SumSource(self.kind, self.size, split, seed)


class SumSource(Source):
    """``source[i]`` depends on (seed, split, i) alone."""

    def __init__(self, kind: str, size: int, split: Split, seed: int) -> None:
        self.kind, self.size, self.seed = kind, size, seed
        self.split: Split = split

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        check_index(self.kind, index, len(self))
        id = f"{self.kind}/{self.split}/{self.seed}/{index}"
        return draw(id, self.split, lambda rng: make_task(id, rng.randint(*FACTORS)), problem=words_of)

    def grader(self) -> Grader:
        return Code().build(self)


def make_task(id: str, factor: int) -> Task:
    columns = {
        "factor": factor,
        "tests": [f"assert f({x}) == {sum(factor * i for i in range(x))}" for x in INPUTS],
        "head": "def f(x): return ",
        "reference": formula(factor),
    }
    content = f"{factor}*i, i<x:"
    return Task(id, ({"role": "user", "content": content},), None, columns, provenance="sums")


def words_of(task: Task) -> str:
    return str(task.messages[-1]["content"])


def loop(factor: int) -> str:
    return f"sum({factor}*i for i in range(x))"


def formula(factor: int) -> str:
    return f"{factor}*x*(x-1)//2"
