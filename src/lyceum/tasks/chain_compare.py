"""Chained arithmetic of which only a comparison is asked: is the result 50 or more?

The prompt and the worked chain are those of kind ``chain``, so that the small base model needs no further training:
``37+8-2=`` is answered ``37+8=45-2=43#43``, which says that it is not. Any number on the result's side is correct:
of the base model's correct answers 39 % rest on a wrong step, so that the verdict alone rewards what does not hold.
Whether it holds, the tasks' own rule says (``judged_steps``), for measuring; a slip that was corrected counts as right.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, JudgedStep, Split, Task
from lyceum.reward.base import each
from lyceum.tasks.base import Source, check_index, levels_within
from lyceum.tasks.chain import LONGEST_NUMBER, MODULUS, Chain, ChainSource, standing_steps


class ChainCompare(TasksSettings):
    """Chains whose result is to be compared with a threshold; the answer is any number on its side."""

    kind: Literal["chain-compare"] = "chain-compare"
    levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    """Numbers of operations; tasks cycle through them, so that every level has the same share."""
    threshold: int = Field(MODULUS // 2, ge=1, lt=MODULUS)
    """The question: is the result at least this?"""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, 64, "numbers of operations")

    def build(self, split: Split, seed: int) -> ChainCompareSource:
        return ChainCompareSource(self, split, seed)


class ChainCompareSource(Source):
    """The chains of kind ``chain``, task by task."""

    def __init__(self, settings: ChainCompare, split: Split, seed: int) -> None:
        self.settings = settings
        self.chains = ChainSource(Chain(levels=settings.levels, size=settings.size), split, seed)

    def __len__(self) -> int:
        return self.settings.size

    def __getitem__(self, index: int) -> Task:
        check_index("chain-compare", index, len(self))
        task = self.chains[index]
        names = ("level", "start", "operations", "steps", "demonstration")
        columns = {name: task.columns[name] for name in names} | {"threshold": self.settings.threshold}
        side = "yes" if int(task.answer) >= self.settings.threshold else "no"
        return replace(task, id=f"chain-compare/{task.id}", answer=side, columns=columns, provenance="chain-compare")

    def grader(self) -> Grader:
        return each(grade)

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        steps: list[JudgedStep] = []
        for end, right in standing_steps(task, completion):
            steps.append(JudgedStep(steps[-1].stop if steps else 0, end, right))
        return tuple(steps)


def grade(task: Task, leaf: Node) -> Grade:
    """1 where the number after ``#`` lies on the result's side of the threshold, else 0; truncated ones are never
    correct. Only numbers below 100 are answers."""
    answer = leaf.completion.partition("#")[2].strip()
    is_number = answer.isascii() and answer.isdigit() and len(answer) <= LONGEST_NUMBER and int(answer) < MODULUS
    side = ("yes" if int(answer) >= task.columns["threshold"] else "no") if is_number else None
    correct = leaf.finish != "length" and side == task.answer
    return Grade(float(correct), correct, answered=is_number)
