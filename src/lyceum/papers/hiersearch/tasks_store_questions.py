"""Questions to agents and to a planner.

``a37+8+2=`` is for the agent of sums, ``b47-5-1=`` for the one of differences, and ``37+8-5=`` for the planner.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.types import Grader, Message, Split, Task
from lyceum.papers.hiersearch._stores import LONGEST, MARKS, SIGNS
from lyceum.papers.hiersearch.environment_fact_store import AGENT
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import Chain, chain_text, draw, grade_leaves, make_task

Agent = Literal["local", "web", "planner"]


class StoreQuestions(Chain):
    """Chains by who answers them, in column ``agent``; one for each in turn."""

    kind: Literal["store-questions"] = "store-questions"  # pyright: ignore[reportIncompatibleVariableOverride]
    levels: tuple[int, ...] = (2, 3, 4)
    """Operations of a planner's chain. A question to an agent has one or two, of the sign that its store knows."""
    agents: tuple[Agent, ...] = Field(default=("local", "web", "planner"), min_length=1)
    """Whose questions: ``local`` knows sums, ``web`` differences, and the planner neither."""

    def build(self, split: Split, seed: int) -> StoreQuestionsSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return StoreQuestionsSource(self, split, seed)


class StoreQuestionsSource(GeneratedSource[StoreQuestions]):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __getitem__(self, index: int) -> Task:
        id, of, heldout = self.key(index), self.settings, self.split == "heldout"
        turn, place = divmod(index, len(of.agents))
        agent, rng = of.agents[place], random.Random(id)
        if agent == "planner":
            start, operations = draw(rng, of.levels[turn % len(of.levels)], heldout=heldout)
        else:
            start, operations = alike(rng, 1 + turn % LONGEST, agent, heldout=heldout)
        task = make_task(id, start, operations)
        return replace(task, messages=question(agent, start, operations), columns={**task.columns, AGENT: agent})

    def grader(self) -> Grader:
        return grade_leaves


def alike(rng: random.Random, level: int, agent: str, *, heldout: bool) -> tuple[int, list[int]]:
    """A start and operations that an agent's store knows, of the given split."""
    while True:
        start, operations = draw(rng, level, heldout=heldout)
        if all(operand * SIGNS[agent] > 0 for operand in operations):
            return start, operations


def question(agent: str, start: int, operations: Sequence[int]) -> tuple[Message, ...]:
    """The messages that ask an agent, or the planner."""
    return ({"role": "user", "content": f"{MARKS.get(agent, '')}{chain_text(start, operations)}"},)
