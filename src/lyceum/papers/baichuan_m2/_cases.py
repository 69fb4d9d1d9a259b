"""Small cases: what a patient has, what a doctor should ask, and a rubric of both. All made up, none of it medicine.

A record ``b:ce`` is a patient who complains of ``b`` and also has ``c`` and ``e``. Which findings tell the diagnosis
follows from the complaint: the two letters after it; the third after it is a red flag, and the others say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

FINDINGS = "abcdef"
DIAGNOSES = 10
NAMES, URGENT = "=", "!"
YES, NO = "y", "n"
_ITEM = re.compile(r"([a-f!]|=\d)(-?\d)")
_RUBRIC = re.compile(rf"(?:{_ITEM.pattern})+")


@dataclass(frozen=True)
class Record:
    """A patient.

    Attributes:
        complaint: the finding that the patient comes with.
        others: the other findings that the patient has, in order.
    """

    complaint: str
    others: str

    def __str__(self) -> str:
        return f"{self.complaint}:{self.others}"

    def after(self, places: int) -> str:
        """The finding so many letters after the complaint."""
        return FINDINGS[(FINDINGS.index(self.complaint) + places) % len(FINDINGS)]

    def has(self, finding: str) -> bool:
        return finding == self.complaint or finding in self.others

    @property
    def telling(self) -> tuple[str, str]:
        """The findings that tell the diagnosis."""
        return self.after(1), self.after(2)

    @property
    def flag(self) -> str:
        """The finding that makes the case urgent."""
        return self.after(3)

    @property
    def needless(self) -> tuple[str, str]:
        """The findings that say nothing here."""
        return self.after(4), self.after(5)

    @property
    def diagnosis(self) -> int:
        """One of four numbers for each complaint."""
        first, second = map(self.has, self.telling)
        return (FINDINGS.index(self.complaint) + 3 * first + 5 * second) % DIAGNOSES

    @property
    def urgent(self) -> bool:
        return self.has(self.flag)

    @property
    def conclusion(self) -> str:
        """What a doctor should say at last: ``=7``, or ``=7!`` where it is urgent."""
        return f"{NAMES}{self.diagnosis}{URGENT if self.urgent else ''}"


class RubricItem(NamedTuple):
    """A criterion of a case: a letter to be asked or noted, ``=7`` to be the diagnosis, ``!`` to be said; its points,
    below 0 for what should not be there."""

    what: str
    points: int


def ruled(record: Record) -> list[RubricItem]:
    """The rubric of a case, as the rule has it: history, safety, no needless questions, and the diagnosis."""
    asked = [RubricItem(finding, 1 + record.has(finding)) for finding in record.telling]
    needless = [RubricItem(finding, -1) for finding in record.needless]
    urgent = RubricItem(URGENT, 3 if record.urgent else -2)
    return [*asked, RubricItem(record.flag, 2), *needless, RubricItem(f"{NAMES}{record.diagnosis}", 4), urgent]


def written(rubric: Sequence[RubricItem]) -> str:
    """A rubric as a model writes it: ``c2d1e2f-1a-1=54!-2``."""
    return "".join(f"{item.what}{item.points}" for item in rubric)


def read(text: str) -> list[RubricItem] | None:
    """The rubric that a text states; None where it is none, or has nothing to earn."""
    if not _RUBRIC.fullmatch(text):
        return None
    items = [RubricItem(what, int(points)) for what, points in _ITEM.findall(text)]
    return items if any(item.points > 0 for item in items) else None


def meets(said: str, item: RubricItem) -> bool:
    """Whether what a doctor said meets a criterion: letters before the first ``=`` are asked or noted."""
    before, _, conclusion = said.partition(NAMES)
    if item.what == URGENT:
        return conclusion.endswith(URGENT)
    if item.what.startswith(NAMES):
        return conclusion.removesuffix(URGENT) == item.what[1:]
    return item.what in before
