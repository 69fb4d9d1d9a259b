"""Someone who has a number in mind: by the tasks' rule, or imagined by the run's own model, person and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Message, Observation, Sampling, Task, TaskSource
from lyceum.tasks.guess import LARGER, REACHED, SMALLER, as_person, criticised, imagined, said
from lyceum.utils.errors import RecipeError

KEPT, REPLACED, UNTRUE, STAND_INS = COUNTED = ("kept", "replaced", "untrue", "stand_ins")
"""Imagined answers that stand as they were written first, those that the critique replaced, those that were heard
(after it) and are not true of the person; and persons whose number is the task's, the model having imagined none."""


class GuessUser(EnvironmentSettings):
    """Answers the policy's guesses at a number (tasks ``guess``); a dialogue that reaches it earns 1.

    ``imagined`` makes both sides of a dialogue the run's own model's: it writes who it is talking to (the number that
    they have in mind), and what they say to each guess. Neither is trained. What they say is what the agent learns
    from: an answer that is not true of their number is heard as well, an ``=`` too early reaches the goal, and one that
    is none of ``<``, ``>`` and ``=`` ends the dialogue.

    Source:
        Zero-Shot Goal-Directed Dialogue via RL on Imagined Conversations, arXiv:2311.05584 (the imagination engine:
        personas, dialogues, critique).
    """

    kind: Literal["guess-user"] = "guess-user"
    step_timeout_seconds: float | None = Field(default=None, gt=0)
    """Time limit of the answer to a turn, in seconds; null, since the run's own model writes it in its own time."""
    imagined: bool = False
    """Whether the run's model imagines the person; else the number is the task's and every answer is true."""
    critique: bool = True
    """Whether the model is asked again what fits the person, with the imagined answer before it, and what it then says
    takes the answer's place."""
    sampling: Sampling = Sampling(max_completion_tokens=4)
    """How persons and their answers are sampled, where they are imagined."""

    @property
    def counted(self) -> tuple[str, ...]:
        return COUNTED

    def check_tasks(self, source: TaskSource) -> None:
        if not source[0].columns.keys() >= {"low", "high"}:
            raise RecipeError("environment.guess-user: the tasks ask for no number of a range; allowed: tasks 'guess'")

    def build(self) -> Environment[Talk]:
        return GuessUserEnvironment(self)


@dataclass(frozen=True)
class Talk:
    """A dialogue so far.

    Attributes:
        own: the task's number.
        number: that of the person; None until one is imagined.
        text: guesses and answers, such as ``5<3>``.
    """

    low: int
    high: int
    own: int
    number: int | None
    text: str = ""


class GuessUserEnvironment:
    def __init__(self, settings: GuessUser) -> None:
        self.settings = settings

    def reset(self, task: Task) -> Talk:
        own = int(task.answer)
        return Talk(task.columns["low"], task.columns["high"], own, None if self.settings.imagined else own)

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Talk:
        return replace(self.reset(task), text="".join(said.strip() + seen.strip() for said, seen in exchanges))

    async def step(self, state: Talk, turn: Node, said: str, context: GradingContext) -> Observation[Talk]:
        count = Counter[str]()
        if state.number is None:
            number = digit(await self.ask(context, imagined(state.low, state.high), turn, "person"))
            known = number is not None and state.low <= number <= state.high
            state = replace(state, number=number if known else state.own)
            count += Counter(calls=1, failed=not known, **{STAND_INS: not known})
        guess = digit(said)
        if guess is None:
            return observation(state, count, end=True)
        answer = await self.answer(state, guess, turn, context, count)
        if answer not in (SMALLER, LARGER):
            reached = answer == REACHED
            return observation(state, count + Counter(failed=not reached), reward=float(reached), end=True)
        after = replace(state, text=f"{state.text}{guess}{answer}")
        key = f"{after.low}:{after.high}?{after.text}"
        return observation(after, count, messages=({"role": "user", "content": answer},), key=key)

    async def answer(self, state: Talk, guess: int, turn: Node, context: GradingContext, count: Counter[str]) -> str:
        """What the person says to a guess; adds to ``count`` what became of the model's texts."""
        assert state.number is not None
        true = said(state.number, guess)
        if not self.settings.imagined:
            return true
        given = written = await self.ask(context, as_person(state.number, str(guess)), turn, "answer")
        if self.settings.critique:
            given = await self.ask(context, criticised(state.number, str(guess), written), turn, "critique")
        calls = 1 + self.settings.critique
        count.update({"calls": calls, KEPT: given == written, REPLACED: given != written, UNTRUE: given != true})
        return given

    async def ask(self, context: GradingContext, messages: Sequence[Message], turn: Node, what: str) -> str:
        key = (f"guess-user/{what}", turn.address)
        [drawn] = await context.ask(context.render(messages), 1, self.settings.sampling, key=key)
        return context.decode(drawn.tokens).strip()


def observation(state: Talk, count: Counter[str], **of: Any) -> Observation[Talk]:
    counts = {name: count[name] for name in COUNTED}
    return Observation(state, calls=count["calls"], failed=count["failed"], counts=counts, **of)


def digit(text: str) -> int | None:
    """The number that a text says; None where it says anything else."""
    said = text.strip()
    return int(said) if len(said) == 1 and said in "0123456789" else None
