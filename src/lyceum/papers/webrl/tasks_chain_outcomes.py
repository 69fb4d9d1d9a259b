"""Finished trajectories with a calculator, and whether they succeeded, as reward ``outcome-judge`` asks for it.

A chain, an attempt at it and ``@`` are answered 1 where the attempt ends with the chain's answer, else 0. Results are
the calculator's, so that attempts fail in two ways: a result is corrected that was right, or the answer comes early.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.types import Grader, Split, Task
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import MODULUS, Chain, completion_text, draw, grade_leaves, make_task
from lyceum.tasks.chain_demonstrations import SLIP

ASK = "@"


class ChainOutcomes(Chain):
    """Prompts for a model of outcomes, with 1 or 0 in ``columns["demonstration"]``: for fine-tuning only."""

    kind: Literal["chain-outcomes"] = "chain-outcomes"  # pyright: ignore[reportIncompatibleVariableOverride]
    failed: float = Field(default=0.5, ge=0, le=1)
    """Share of the attempts that fail."""
    early: float = Field(default=0.5, ge=0, le=1)
    """Share of the failed ones that are answered before the last operation; the others correct a right result."""

    def build(self, split: Split, seed: int) -> ChainOutcomeSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ChainOutcomeSource(self, split, seed)


class ChainOutcomeSource(GeneratedSource[ChainOutcomes]):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __getitem__(self, index: int) -> Task:
        of, id = self.settings, self.key(index)
        rng = random.Random(id)
        start, operations = draw(rng, of.levels[index % len(of.levels)], heldout=self.split == "heldout")
        task = make_task(id, start, operations)
        fails = rng.random() < of.failed
        early = fails and len(operations) > 1 and rng.random() < of.early
        corrected = rng.randrange(len(operations)) if fails and not early else None
        attempt = attempted(start, operations[: len(operations) - early], corrected)
        verdict = str(int(not fails))
        turns = ({"role": "assistant", "content": attempt}, {"role": "user", "content": ASK})
        columns = {"demonstration": verdict, "level": len(operations)}
        return Task(id, (*task.messages, *turns), verdict, columns, provenance="chain-outcomes")

    def grader(self) -> Grader:
        return grade_leaves


def attempted(start: int, operations: Sequence[int], corrected: int | None) -> str:
    """What an agent writes with the calculator's results, of which it "corrects" one by 10: ``37+8=45!35-2=33#33``."""
    value, results = start, list[int | str]()
    for place, operand in enumerate(operations):
        value = (value + operand) % MODULUS
        if place == corrected:
            wrong = (value - SLIP) % MODULUS
            results.append(f"{value}!{wrong}")
            value = wrong
        else:
            results.append(value)
    return completion_text(start, operations, results)
