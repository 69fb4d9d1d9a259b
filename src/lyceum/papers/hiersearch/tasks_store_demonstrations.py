"""Demonstrations of agents that search their stores and of planners that ask agents: for fine-tuning only.

An agent: ``a37+8+2=`` is answered ``37+8?37+7=44,37+8=45,38+8=46;37+8=45+2?...;45+2=47#47``. A planner:
``37+8+2-5=`` is answered ``37+8+2a?37+8=45,45+2=47;47-5b?47-5=42;#42``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

from pydantic import Field

from lyceum.core.types import Grader, Split, Task
from lyceum.papers.hiersearch._stores import ASK, LONGEST, MARKS, PASSAGES, SIGNS, passage, passages, perfect, written
from lyceum.papers.hiersearch.tasks_store_questions import alike, question
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import MODULUS, Chain, chain_text, draw, grade_leaves, make_task


class StoreDemonstrations(Chain):
    """A third of them is an agent's, the others a planner's, with the mistakes that training is to undo."""

    kind: Literal["store-demonstrations"] = "store-demonstrations"  # pyright: ignore[reportIncompatibleVariableOverride]
    levels: tuple[int, ...] = (2, 3, 4)
    """Operations of a planner's chain."""
    misread: float = Field(default=0.1, ge=0, le=1)
    """Probability that an agent goes on from another passage than the one it looked for."""
    misasked: float = Field(default=0.15, ge=0, le=1)
    """Probability that a planner asks the agent whose store does not know."""

    def build(self, split: Split, seed: int) -> StoreDemonstrationsSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return StoreDemonstrationsSource(self, split, seed)


class StoreDemonstrationsSource(GeneratedSource[StoreDemonstrations]):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng, heldout = random.Random(id), self.split == "heldout"
        if rng.random() < 1 / 3:
            agent = rng.choice(list(SIGNS))
            start, operations = alike(rng, rng.randint(1, LONGEST), agent, heldout=heldout)
            messages, text = question(agent, start, operations), self.searching(rng, agent, start, operations)
        else:
            start, operations = draw(rng, rng.choice(self.settings.levels), heldout=heldout)
            messages, text = question("planner", start, operations), self.planning(rng, start, operations)
        task = make_task(id, start, operations).with_messages(messages)
        return replace(task, columns={"demonstration": text}, provenance=self.settings.kind)

    def searching(self, rng: random.Random, agent: str, start: int, operations: Sequence[int]) -> str:
        """An agent's searches, what it got, and its conclusion."""
        number, text = start, str(start)
        for operand in operations:
            found = passages(agent, number, operand, rng, PASSAGES)
            misread = rng.random() < self.settings.misread
            read = rng.choice(found) if misread else passage(number, operand)
            text += f"{operand:+d}{ASK}{written(found)}{read}"
            number = int(read.rpartition("=")[2])
        return f"{text}#{number}"

    def planning(self, rng: random.Random, start: int, operations: Sequence[int]) -> str:
        """A planner's questions, the refined evidence, and its answer."""
        number, text = start, ""
        for run in runs(operations):
            known = next(agent for agent, sign in SIGNS.items() if sign * run[0] > 0)
            other = next(agent for agent in SIGNS if agent != known)
            agent = other if rng.random() < self.settings.misasked else known
            evidence = perfect(agent, number, run)
            beside = rng.choice(passages(agent, number, run[0], rng, PASSAGES))
            shown = dict.fromkeys([*evidence, beside])
            text += f"{chain_text(number, run, MARKS[agent]).removesuffix('=')}{ASK}{written([*shown])}"
            number = int(evidence[-1].rpartition("=")[2]) % MODULUS
        return f"{text}#{number}"

    def grader(self) -> Grader:
        return grade_leaves


def runs(operations: Sequence[int]) -> list[list[int]]:
    """Neighbouring operations of one sign, at most ``LONGEST`` together: +8 +2 -5 is [[8, 2], [-5]]."""
    same = [list(run) for _, run in groupby(operations, lambda operand: operand > 0)]
    return [run[i : i + LONGEST] for run in same for i in range(0, len(run), LONGEST)]
