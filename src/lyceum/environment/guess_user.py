"""Someone who has a number in mind: by the tasks' rule, or imagined by the run's own model, person and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Message, Observation, Sampling, Task, TaskSource
from lyceum.tasks.guess import REACHED, as_person, imagined, said
from lyceum.utils.errors import RecipeError


class GuessUser(EnvironmentSettings):
    """Answers the policy's guesses at a number (tasks ``guess``); a dialogue that reaches it earns 1.

    ``imagined`` makes both sides of a dialogue the run's own model's: it writes who it is talking to (the number that
    they have in mind), and what they say to each guess. Neither is trained.

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
    """Whether imagined answers that contradict the person are corrected before the dialogue goes on; else the goal is
    reached when the imagined person says so."""
    sampling: Sampling = Sampling(max_completion_tokens=4)
    """How persons and their answers are sampled, where they are imagined."""

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
        calls = failed = 0
        if state.number is None:
            number = digit(await self.ask(context, imagined(state.low, state.high), turn, "person"))
            known = number is not None and state.low <= number <= state.high
            state = replace(state, number=number if known else state.own)
            calls, failed = 1, int(not known)
        guess = digit(said)
        if guess is None:
            return Observation(state, end=True, calls=calls, failed=failed)
        answer, contradicts = await self.answer(state, guess, turn, context)
        calls, failed = calls + self.settings.imagined, failed + contradicts
        if answer == REACHED:
            return Observation(state, reward=1.0, end=True, calls=calls, failed=failed)
        after = replace(state, text=f"{state.text}{guess}{answer}")
        key = f"{after.low}:{after.high}?{after.text}"
        return Observation(after, ({"role": "user", "content": answer},), key=key, calls=calls, failed=failed)

    async def answer(self, state: Talk, guess: int, turn: Node, context: GradingContext) -> tuple[str, bool]:
        """What the person says to a guess, and whether what was imagined contradicts who they are."""
        assert state.number is not None
        true = said(state.number, guess)
        if not self.settings.imagined:
            return true, False
        written = (await self.ask(context, as_person(state.number, str(guess)), turn, "answer")).strip()
        return true if self.settings.critique else written, written != true

    async def ask(self, context: GradingContext, messages: Sequence[Message], turn: Node, what: str) -> str:
        key = (f"guess-user/{what}", turn.address)
        [drawn] = await context.ask(context.render(messages), 1, self.settings.sampling, key=key)
        return context.decode(drawn.tokens)


def digit(text: str) -> int | None:
    """The number that a text says; None where it says anything else."""
    said = text.strip()
    return int(said) if len(said) == 1 and said in "0123456789" else None
