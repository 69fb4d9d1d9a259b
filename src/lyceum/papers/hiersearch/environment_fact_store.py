"""A store of facts that an agent searches: each search gets several passages, one of which may be the one it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from pydantic import Field

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Task
from lyceum.environment._notation import AnswerSoFar
from lyceum.papers.hiersearch._stores import ASK, PASSAGES, SIGNS, asked, passages, perfect, searched, written

AGENT = "agent"
"""Column of a task that says whose store is searched."""


class FactStore(EnvironmentSettings):
    """Answers ``37+8?`` from the store of the task's agent (column ``agent``), with passages in no order:
    ``38+8=46,37+8=45,37+7=44;``.

    Any other task is a planner's: ``37+8+2a?`` gets the evidence of an agent that makes no mistake. For
    evaluating a planner by itself.
    """

    kind: Literal["fact-store"] = "fact-store"
    passages: int = Field(default=PASSAGES, ge=1, le=4)
    """Passages per search."""

    @property
    def stops(self) -> tuple[str, ...]:
        return (ASK,)

    def build(self) -> Environment[Stored]:
        return FactStoreEnvironment(self)


@dataclass(frozen=True)
class Stored(AnswerSoFar):
    """What stands in an answer, and the agent whose store is searched; None for a planner's questions."""

    agent: str | None = None


class FactStoreEnvironment:
    def __init__(self, settings: FactStore) -> None:
        self.settings = settings

    def reset(self, task: Task) -> Stored:
        agent = task.columns.get(AGENT)
        return Stored(agent=agent if agent in SIGNS else None)

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Stored:
        return self.reset(task).after(exchanges)

    async def step(self, state: Stored, turn: Node, said: str, context: GradingContext) -> Observation[Stored]:
        found = self.found(state.agent, said, Random(context.seed(self.settings.kind, turn.address)))
        if found is None:
            return Observation(state, end=True)
        after = state.then(said, found)
        return Observation(
            after, tokens=tuple(context.encode_after(turn.path_tokens(), found)), key=after.text, calls=1
        )

    def found(self, agent: str | None, said: str, rng: Random) -> str | None:
        """What a turn is answered; None where it asks for nothing."""
        if agent is None:
            question = asked(said)
            return None if question is None else written(perfect(*question))
        search = searched(said)
        return None if search is None else written(passages(agent, *search, rng, self.settings.passages))
