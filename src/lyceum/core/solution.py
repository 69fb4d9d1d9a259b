"""Worked solutions in steps, whose prefixes are the hints of prefix guidance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lyceum.core.types import Hint, Task

LINES = 4
"""A demonstration of at least this many lines is split at lines, a shorter one at words."""


@dataclass(frozen=True)
class Solution:
    """A solution whose first steps can be given as a hint.

    Attributes:
        steps: steps that a hint may give, in order; without the last step, which reveals the answer.
        total: number of steps of the whole solution.
        before: text before the first step in a hint.
        between: text between two steps.
    """

    steps: tuple[str, ...]
    total: int
    before: str = ""
    between: str = ""

    @classmethod
    def all_but_last(cls, steps: Sequence[str], *, before: str = "", between: str = "") -> Solution:
        return cls(tuple(steps[:-1]), len(steps), before, between)

    def count(self, share: float) -> int:
        """Number of steps in a hint of this fraction of the solution: the nearest number that may be given."""
        return max(0, min(round(share * self.total), len(self.steps)))

    def hint(self, count: int) -> Hint:
        """The first ``count`` steps as a hint."""
        return Hint("solution", self.before + self.between.join(self.steps[:count]))

    def first(self, count: int) -> Solution:
        """The same solution, with at most its first ``count`` steps to give."""
        return replace(self, steps=self.steps[:count])


def written_solution(task: Task) -> Solution | None:
    """The solution in a task's columns: its ``steps``, its ``demonstration``, or its hints of tier ``solution``.

    None where none of them has at least two steps.
    """
    steps = task.columns.get("steps")
    if isinstance(steps, Sequence) and len(steps) > 1 and all(isinstance(step, str) for step in steps):
        return Solution.all_but_last(steps, before="The solution begins:\n", between="\n")
    demonstration = task.columns.get("demonstration")
    if isinstance(demonstration, str):
        pieces = demonstration.strip().splitlines(keepends=True)
        if len(pieces) < LINES:
            pieces = re.findall(r"\S+\s*", demonstration)
        if len(pieces) > 1:
            return Solution.all_but_last(pieces, before="The solution begins:\n")
    texts = [hint.text for hint in levels_of(ladder_of(task), ("solution",))]
    if not texts:
        return None
    ends = [len(text) for text in texts]
    steps = tuple(text[start:] for text, start in zip(texts, [0, *ends], strict=False))
    return Solution(steps, len(steps) + 1)


def ladder_of(task: Task) -> list[Hint]:
    """The hints in a task's column ``hints``, from abstract to concrete; empty where it has none."""
    return [Hint(hint["tier"], hint["text"]) for hint in task.columns.get("hints") or ()]


def levels_of(ladder: Sequence[Hint], tiers: Sequence[str]) -> list[Hint]:
    """Hints from least to most help: tier by tier, and cumulative within a tier.

    A hint that begins with the previous one of its tier already contains it; otherwise the two are joined by a newline.
    Hints do not accumulate from one tier to the next.
    """
    levels: list[Hint] = []
    for tier in tiers:
        text = ""
        for hint in ladder:
            if hint.tier == tier:
                text = hint.text if hint.text.startswith(text) else f"{text}\n{hint.text}"
                levels.append(Hint(tier, text))
    return levels
