"""What doctors, patients and writers of rubrics say of cases, for fine-tuning the small base model."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.types import Message, Split, Task
from lyceum.papers.baichuan_m2._cases import FINDINGS, NO, YES, Record, ruled, written
from lyceum.papers.baichuan_m2.tasks_case import (
    Case,
    CaseSource,
    asked,
    mistaken,
    record_of,
    to_patient,
    to_rubric,
)


class CaseDemonstrations(Case):
    """In turn a report on a record, the next turn of a consultation, a patient's answer, and a rubric.

    Patients and rubrics are right; doctors are careless, so that there is something left to learn.
    """

    kind: Literal["case-demonstrations"] = "case-demonstrations"  # pyright: ignore[reportIncompatibleVariableOverride]
    careless: float = Field(0.4, ge=0, le=1)
    """Probability that a doctor's question, or a finding that a report notes, is any."""
    error: float = Field(0.2, ge=0, le=1)
    """Probability that a doctor's diagnosis is any, and that its urgency is the opposite."""

    def build(self, split: Split, seed: int) -> CaseDemonstrationSource:
        return CaseDemonstrationSource(self, split, seed)


class CaseDemonstrationSource(CaseSource):
    """Task i has form i modulo 4, and depends on its id alone."""

    def __init__(self, settings: CaseDemonstrations, split: Split, seed: int) -> None:
        super().__init__(settings, split, seed)
        self.careless, self.error = settings.careless, settings.error

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        record, rng = record_of(task), random.Random(f"{task.id}/said")
        forms = (self.report, self.consultation, self.patient, self.rubric)
        messages, text = forms[index % len(forms)](rng, record)
        columns = {**task.columns, "demonstration": text}
        return replace(task, messages=messages, answer=text, columns=columns, provenance="case-demonstrations")

    def report(self, rng: random.Random, record: Record) -> tuple[tuple[Message, ...], str]:
        """Half of the reports only conclude; the others note findings first."""
        noted = "".join(self.questions(rng, record)) if rng.random() < 0.5 else ""
        return (asked(str(record)),), noted + mistaken(rng, record, self.error)

    def consultation(self, rng: random.Random, record: Record) -> tuple[tuple[Message, ...], str]:
        """A dialogue so far, and the doctor's next turn."""
        questions = self.questions(rng, record)
        so_far = rng.randint(0, len(questions))
        messages = [asked(record.complaint)]
        for finding in questions[:so_far]:
            heard = YES if record.has(finding) else NO
            messages += [{"role": "assistant", "content": finding}, {"role": "user", "content": heard}]
        if so_far < len(questions):
            return tuple(messages), questions[so_far]
        return tuple(messages), mistaken(rng, record, self.error)

    def patient(self, rng: random.Random, record: Record) -> tuple[tuple[Message, ...], str]:
        finding = rng.choice(FINDINGS)
        return to_patient(record, finding), YES if record.has(finding) else NO

    def rubric(self, rng: random.Random, record: Record) -> tuple[tuple[Message, ...], str]:
        return to_rubric(record), written(ruled(record))

    def questions(self, rng: random.Random, record: Record) -> list[str]:
        """What a doctor asks, in order: what matters, and in its place now and then anything, asked before or not."""
        matters = [*record.telling, record.flag]
        rng.shuffle(matters)
        found = [rng.choice(FINDINGS) if rng.random() < self.careless else finding for finding in matters]
        return [*found, *(rng.choice(FINDINGS) for _ in range(rng.randint(0, 2)))]
