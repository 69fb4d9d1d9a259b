"""Numeric match: an answer is correct when it is the same number."""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each, right_answers, verdict
from lyceum.reward.extract import WHOLE, Extract

LONGEST_NUMBER = 100
"""Maximum characters of a number; a longer run of digits is not an answer, and arithmetic on it is not bounded."""

# A sign counts only where no number or word ends right before it: in "5-3" and "1990-95" it is a minus or a dash.
_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-+\N{MINUS SIGN}])?"
    r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d{1,4}(?!\w))?"
)


class Number(RewardSettings):
    """1 where the last number of the extracted answer is the task's, or one of several, within a tolerance, else 0."""

    kind: Literal["number"] = "number"
    compares_answers: ClassVar[bool] = True
    extract: Extract = WHOLE
    """Where to find the answer in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""
    tolerance: float = Field(1e-6, ge=0)
    """Absolute tolerance, in the answer's unit."""
    relative_tolerance: float = Field(0.0, ge=0)
    """Relative tolerance, as a share of the answer (no unit); the larger of both applies."""

    def build(self, source: TaskSource) -> Grader:
        return each(self.score)

    def score(self, task: Task, leaf: Node) -> Grade:
        answers = right_answers(task)
        expected = [number for answer in answers if (number := to_number(answer)) is not None]
        if not answers or len(expected) < len(answers):
            return Grade.ungraded(f"the answer {task.answer!r} of task {task.id!r} is no number")
        found = last_number(self.extract(leaf.completion) or "")
        right = found is not None and any(self._close(found, number) for number in expected)
        return verdict(right, answered=self.extract.answered(leaf.completion))

    def _close(self, found: Decimal, expected: Decimal) -> bool:
        return close(found, expected, self.tolerance, self.relative_tolerance)


def to_number(answer: Any) -> Decimal | None:
    """The number in an answer that is nothing else: 42, "1,234.5", "$3", "50%", "3/4". None if it is not a number."""
    if isinstance(answer, bool) or answer is None:
        return None
    text = str(answer).strip().strip("$%").strip()
    over, slash, under = text.partition("/")
    if slash:
        return _quotient(_parse(over.strip()), _parse(under.strip()))
    return _parse(text)


def last_number(text: str) -> Decimal | None:
    """The last number in a text; commas may separate thousands, ``3/4`` is a number. None: no number."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return None
    last = _parse(found[-1].group())
    if len(found) > 1 and text[found[-2].end() : found[-1].start()].strip() == "/":
        return _quotient(_parse(found[-2].group()), last)
    return last


def close(found: Decimal, expected: Decimal, tolerance: float, relative_tolerance: float) -> bool:
    """|found - expected| <= max(tolerance, relative_tolerance * |expected|)."""
    try:
        return abs(found - expected) <= max(Decimal(tolerance), Decimal(relative_tolerance) * abs(expected))
    except DecimalException:  # the model's 1e9999 against 1: the difference cannot be represented
        return False


def _quotient(over: Decimal | None, under: Decimal | None) -> Decimal | None:
    try:
        return None if over is None or under is None else over / under
    except DecimalException:  # by zero, or out of range
        return None


def _parse(text: str) -> Decimal | None:
    if len(text) > LONGEST_NUMBER:
        return None
    try:
        number = Decimal(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))
    except DecimalException:
        return None
    return number if number.is_finite() else None
