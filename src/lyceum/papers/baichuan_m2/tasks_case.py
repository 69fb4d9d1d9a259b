"""Cases to diagnose: from the whole record (``b:ce?``), or by asking a patient who says only the complaint (``b?``).

Kind ``case-demonstrations`` shows the form of both, of a patient's answers and of rubrics, for fine-tuning.
"""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Message, Split, Task
from lyceum.papers.baichuan_m2._cases import FINDINGS, NAMES, URGENT, Record
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource

Shown = Literal["record", "complaint"]


class Case(TasksSettings):
    """Cases; correct where the conclusion has the right diagnosis, and says that it is urgent where it is."""

    kind: Literal["case"] = "case"
    shown: tuple[Shown, ...] = Field(("record", "complaint"), min_length=1)
    """What the prompt says: all that the patient has, or only the complaint (with environment ``patient``). Tasks cycle
    through them; column ``shown`` says which."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    def build(self, split: Split, seed: int) -> CaseSource:
        return CaseSource(self, split, seed)


class CaseSource(GeneratedSource[Case]):
    """``source[i]`` depends on (seed, split, i) alone. Records are few, and the same in both splits."""

    def __getitem__(self, index: int) -> Task:
        key = self.key(index)
        record = drawn(random.Random(key))
        shown = self.settings.shown[index % len(self.settings.shown)]
        messages = (asked(str(record) if shown == "record" else record.complaint),)
        columns = {"record": str(record), "shown": shown}
        return Task(key, messages, record.conclusion, columns, provenance="case")

    def grader(self) -> Grader:
        return each(grade)


def drawn(rng: random.Random) -> Record:
    """A record, uniform among all: each finding is there or not."""
    complaint = rng.choice(FINDINGS)
    return Record(complaint, "".join(x for x in FINDINGS if x != complaint and rng.random() < 0.5))


def record_of(task: Task) -> Record:
    """The patient of a task."""
    complaint, _, others = str(task.columns["record"]).partition(":")
    return Record(complaint, others)


def asked(shown: str) -> Message:
    return {"role": "user", "content": f"{shown}?"}


def to_patient(record: Record, finding: str) -> tuple[Message, ...]:
    """The prompt that is answered with what the patient says to a question: ``b:ce@d``."""
    return ({"role": "user", "content": f"{record}@{finding}"},)


def to_rubric(record: Record) -> tuple[Message, ...]:
    """The prompt that is answered with the rubric of a case: ``b:ce&``."""
    return ({"role": "user", "content": f"{record}&"},)


def grade(task: Task, leaf: Node) -> Grade:
    """Whether the conclusion is the right one; what was cut is never correct."""
    _, names, conclusion = leaf.completion.partition(NAMES)
    return verdict(leaf.finish != "length" and names + conclusion.strip() == task.answer, answered=bool(names))


def mistaken(rng: random.Random, record: Record, error: float) -> str:
    """A conclusion whose diagnosis is now and then any, and whose urgency is now and then the opposite."""
    diagnosis = rng.randrange(10) if rng.random() < error else record.diagnosis
    urgent = record.urgent != (rng.random() < error)
    return f"{NAMES}{diagnosis}{URGENT if urgent else ''}"
