"""Worked solutions in steps, to be given in part: what prefix guidance cuts its hints from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lyceum.core.types import Hint, Task

LINES = 4
"""A demonstration of at least so many lines is cut at lines, a shorter one at words."""


@dataclass(frozen=True)
class Solution:
    """A solution whose first steps can be given as a hint.

    Attributes:
        steps: those that a hint may give, in order; the last step, which says the answer, is not among them.
        total: steps of the whole solution.
        before: what stands before the first step in a hint.
        between: what stands between two steps.
    """

    steps: tuple[str, ...]
    total: int
    before: str = ""
    between: str = ""

    def count(self, share: float) -> int:
        """Steps that a hint of this share of the solution gives: the nearest number that may be given."""
        return max(0, min(round(share * self.total), len(self.steps)))

    def hint(self, count: int) -> Hint:
        """The first ``count`` steps as a hint."""
        return Hint("solution", self.before + self.between.join(self.steps[:count]))

    def first(self, count: int) -> Solution:
        """The same solution, of which no more than ``count`` steps may be given."""
        return replace(self, steps=self.steps[:count])


def written_solution(task: Task) -> Solution | None:
    """The solution in a task's columns: its ``steps``, its ``demonstration``, or its hints of tier ``solution``.

    None where none of them has two steps or more.
    """
    steps = task.columns.get("steps")
    if isinstance(steps, Sequence) and len(steps) > 1 and all(isinstance(step, str) for step in steps):
        return Solution(tuple(steps[:-1]), len(steps), before="The solution begins:\n", between="\n")
    demonstration = task.columns.get("demonstration")
    if isinstance(demonstration, str):
        pieces = demonstration.strip().splitlines(keepends=True)
        if len(pieces) < LINES:
            pieces = re.findall(r"\S+\s*", demonstration)
        if len(pieces) > 1:
            return Solution(tuple(pieces[:-1]), len(pieces), before="The solution begins:\n")
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
    """Hints in the order in which help grows: tier by tier, and in a tier each with all that the tier said before.

    A hint that begins with the one before it in its tier says that already; otherwise the two are joined by a line end.
    What a tier says is not taken on into the next.
    """
    levels: list[Hint] = []
    for tier in tiers:
        text = ""
        for hint in ladder:
            if hint.tier == tier:
                text = hint.text if hint.text.startswith(text) else f"{text}\n{hint.text}"
                levels.append(Hint(tier, text))
    return levels
