"""A patient whom the run's own model plays: the record is known to the patient alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Sampling, Task, TaskSource
from lyceum.papers.baichuan_m2._cases import FINDINGS, NO, YES, Record
from lyceum.papers.baichuan_m2.tasks_case import record_of, to_patient
from lyceum.utils.errors import RecipeError

ANSWERED, UNTRUE, UNREADABLE, REPEATED = COUNTED = ("answered", "untrue", "unreadable", "repeated")
"""Questions that the patient answered, answers that are not so by the record, texts of the model that are no answer
(in their place the patient says what the record has), and questions that were asked before."""


class Patient(EnvironmentSettings):
    """Answers a doctor's questions, one finding per turn; anything else ends the consultation.

    The run's model plays the patient: it reads the record and the question, and is not trained on it. What it says
    is heard, whether it is so or not.

    Source:
        Baichuan-M2, arXiv:2509.02208 (the patient simulator).
    """

    kind: Literal["patient"] = "patient"
    step_timeout_seconds: float | None = Field(default=None, gt=0)
    """Time limit of the answer to a turn, in seconds; null, since the run's own model writes it in its own time."""
    simulated: bool = True
    """Whether the run's model plays the patient; else every answer is the record's."""
    sampling: Sampling = Sampling(max_completion_tokens=4)
    """How the patient's answers are sampled."""

    @property
    def counted(self) -> tuple[str, ...]:
        return COUNTED

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if "record" not in source[0].columns:
            raise RecipeError("environment.patient: the tasks have no record; allowed: tasks 'case'")

    def build(self) -> Environment[Consultation]:
        return PatientEnvironment(self)


@dataclass(frozen=True)
class Consultation:
    """A patient, and what was asked so far."""

    record: Record
    asked: str = ""


class PatientEnvironment:
    def __init__(self, settings: Patient) -> None:
        self.settings = settings

    def reset(self, task: Task) -> Consultation:
        return Consultation(record_of(task))

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Consultation:
        return replace(self.reset(task), asked="".join(said.strip() for said, _ in exchanges))

    async def step(
        self, state: Consultation, turn: Node, said: str, context: GradingContext
    ) -> Observation[Consultation]:
        finding = said.strip()
        if len(finding) != 1 or finding not in FINDINGS:
            return Observation(state, end=True)
        true = heard = YES if state.record.has(finding) else NO
        unreadable = False
        if self.settings.simulated:
            messages = context.render(to_patient(state.record, finding))
            [drawn] = await context.ask(messages, 1, self.settings.sampling, key=("patient", turn.address))
            given = context.decode(drawn.tokens).strip()
            unreadable = given not in (YES, NO)
            heard = true if unreadable else given
        counts = {
            ANSWERED: 1,
            UNTRUE: int(heard != true),
            UNREADABLE: int(unreadable),
            REPEATED: int(finding in state.asked),
        }
        after = replace(state, asked=state.asked + finding)
        key = f"{state.record.complaint}?{after.asked}"
        shown = ({"role": "user", "content": heard},)
        return Observation(after, shown, key=key, calls=1, failed=int(unreadable), counts=counts)
