"""How much of a text a completion has: overlap with a reference, from 0 to 1."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each
from lyceum.reward.extract import WHOLE, Extract
from lyceum.utils.errors import RecipeError, nearest

MOST_UNITS = 5000
"""Maximum words or characters that are compared of a text; what is longer is cut at its end."""

_WORD = re.compile(r"\w+|[^\w\s]")


class TextOverlap(RewardSettings):
    """Overlap of the extracted answer with the task's, or the best with one of several; 0 where there is none.

    An answer is correct where the overlap is ``right_from`` or more.
    """

    kind: Literal["text-overlap"] = "text-overlap"
    measure: Literal["rouge-l", "rouge-n", "bleu", "prefix"] = "rouge-l"
    """``rouge-l``: F1 of the longest common subsequence; ``rouge-n``: F1 of the n-grams in common; ``bleu``: precision
    of the n-grams up to n, less where the answer is shorter; ``prefix``: 1 where the reference begins with the answer,
    or the answer with the reference, else 0."""
    n: int = Field(1, ge=1, le=9)
    """Words (or characters) per n-gram; for ``bleu`` the most of them."""
    unit: Literal["word", "character"] = "word"
    """What is compared. Punctuation signs are words."""
    case: bool = False
    """Whether capitals differ from small letters."""
    extract: Extract = WHOLE
    """Where to find the answer in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""
    reference: str | None = None
    """Column that has the text to compare with; null takes the task's answer. Of tasks kind 'text', ``rest`` is all
    that follows."""
    least: int = Field(1, ge=1, le=MOST_UNITS)
    """Minimum units of an answer that ``prefix`` pays, where the reference has as many: one word is easily right."""
    right_from: float = Field(1.0, gt=0, le=1)
    """Overlap from which an answer counts as correct."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        columns = source[0].columns
        if self.reference is None:
            self.check_answers(source)
        elif self.reference not in columns:
            raise RecipeError(
                f"reward.text-overlap.reference: got {self.reference!r}{nearest(self.reference, columns)}, which task "
                f"{source[0].id!r} has no column of; allowed: {', '.join(columns) or 'null'}"
            )

    def build(self, source: TaskSource) -> Grader:
        return each(self.score)

    def score(self, task: Task, leaf: Node) -> Grade:
        given = task.answer if self.reference is None else task.columns.get(self.reference)
        references = [self.units(str(one)) for one in (given if isinstance(given, list | tuple) else [given])]
        if given is None or not all(references):
            return Grade.ungraded(f"task {task.id!r} has no text to compare with")
        answer = self.units(self.extract(leaf.completion) or "")
        overlap = max(self.overlap(answer, reference) for reference in references) if answer else 0.0
        return Grade(overlap, overlap >= self.right_from, answered=self.extract.answered(leaf.completion))

    def units(self, text: str) -> list[str]:
        """The text's words, or its characters without white space."""
        text = text if self.case else text.casefold()
        found = _WORD.findall(text) if self.unit == "word" else "".join(text.split())
        return list(found[:MOST_UNITS])

    def overlap(self, answer: Sequence[str], reference: Sequence[str]) -> float:
        match self.measure:
            case "rouge-l":
                return f1(common_subsequence(answer, reference), len(answer), len(reference))
            case "rouge-n":
                mine, theirs = grams(answer, self.n), grams(reference, self.n)
                return f1((mine & theirs).total(), mine.total(), theirs.total())
            case "bleu":
                return bleu(answer, reference, n=self.n)
            case "prefix":
                shared = min(len(answer), len(reference))
                enough = len(answer) >= min(self.least, len(reference))
                return float(enough and list(answer[:shared]) == list(reference[:shared]))


def grams(units: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each run of n units occurs."""
    return Counter(tuple(units[at : at + n]) for at in range(len(units) - n + 1))


def f1(common: int, answer: int, reference: int) -> float:
    """Harmonic mean of common / answer and common / reference: 2 c / (a + r); 0 where both are empty."""
    return 2 * common / (answer + reference) if answer + reference else 0.0


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence, by bits: one number of len(a) bits per unit of b.

    Source:
        Hyyro, Bit-parallel LCS-length computation revisited (2004): V' = (V + (V & M)) | (V & ~M), zeros of V counted.
    """
    where: dict[str, int] = {}
    for at, unit in enumerate(a):
        where[unit] = where.get(unit, 0) | 1 << at
    every = (1 << len(a)) - 1
    v = every
    for unit in b:
        met = v & where.get(unit, 0)
        v = ((v + met) | (v - met)) & every
    return len(a) - v.bit_count()


def bleu(answer: Sequence[str], reference: Sequence[str], *, n: int) -> float:
    """Geometric mean of the clipped precisions of 1-grams to n-grams, times min(1, exp(1 - r / a)).

    Precisions above 1-grams are (matches + 1) / (grams + 1), so that a short answer is not 0 for lack of one.

    Args:
        answer: of a units, one or more.
        reference: of r units.
        n: largest size; at most the shorter text's.
    Source:
        Papineni et al. 2002; smoothing: Lin and Och 2004.
    """
    total = 0.0
    sizes = min(n, len(answer), len(reference))
    for size in range(1, sizes + 1):
        mine, theirs = grams(answer, size), grams(reference, size)
        smooth = int(size > 1)
        matches = (mine & theirs).total() + smooth
        if not matches:
            return 0.0
        total += math.log(matches / (mine.total() + smooth))
    return math.exp(total / sizes + min(0.0, 1 - len(reference) / len(answer)))
