"""Texts with masked spans, to be filled in by looking them up: ``37+8=_-2=43+5=_:`` is answered ``...#45,48``.

The text is a worked chain, whose masked results a tool knows (environment ``calculator``); the level is how many are
masked. What is answered are the masked numbers alone, in their order.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, levels_within
from lyceum.tasks.chain import draw, results_of

MASK, ASKS = "_", ":"


class MaskedChains(TasksSettings):
    """Worked chains with masked results, and a demonstration that looks each of them up; one level for each number of
    masks. Operations before a masked result are given, and so are the results that are not masked."""

    kind: Literal["masked-chains"] = "masked-chains"
    levels: tuple[int, ...] = (1, 2, 3, 4)
    """Numbers of masked results; tasks cycle through them, so that every level has the same share."""
    operations: int = Field(default=4, ge=1, le=8)
    """Operations of each text; at least the highest level."""
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, 8, "numbers of masked results")

    @model_validator(mode="after")
    def _has_as_many_results(self) -> MaskedChains:
        if max(self.levels) > self.operations:
            raise ValueError(f"levels: got {max(self.levels)} with {self.operations} operations; allowed: at most that")
        return self

    def build(self, split: Split, seed: int) -> MaskedChainsSource:
        return MaskedChainsSource(self, split, seed)


class MaskedChainsSource(GeneratedSource[MaskedChains]):
    """``source[i]`` depends on (seed, split, i) alone; its chains have the same splits as kind ``chain``."""

    def __getitem__(self, index: int) -> Task:
        id, levels = self.key(index), self.settings.levels
        rng = random.Random(id)
        start, operations = draw(rng, self.settings.operations, heldout=self.split == "heldout")
        masked = sorted(rng.sample(range(len(operations)), levels[index % len(levels)]))
        return make_task(id, start, operations, masked)

    def grader(self) -> Grader:
        return each(grade)


def make_task(id: str, start: int, operations: list[int], masked: list[int]) -> Task:
    """The task of a chain whose results at the places ``masked``, from 0, are to be filled in."""
    results = results_of(start, operations)
    before = [start, *results[:-1]]
    shown = "".join(
        f"{operand:+d}={MASK if place in masked else result}"
        for place, (operand, result) in enumerate(zip(operations, results, strict=True))
    )
    answer = ",".join(str(results[place]) for place in masked)
    found = ";".join(f"{before[place]}{operations[place]:+d}={results[place]}" for place in masked)
    columns = {"level": len(masked), "demonstration": f"{found}#{answer}"}
    messages = ({"role": "user", "content": f"{start}{shown}{ASKS}"},)
    return Task(id, messages, answer, columns, provenance="masked-chains")


def grade(task: Task, leaf: Node) -> Grade:
    """1 where every masked number is filled in, else 0; ``recall`` is the share of them, in their places."""
    said = leaf.completion.rpartition("#")[2].strip().split(",") if "#" in leaf.completion else []
    wanted = str(task.answer).split(",")
    found = verdict(leaf.finish != "length" and said == wanted, answered=bool(said))
    right = sum(one == other for one, other in zip(said, wanted, strict=False))
    return replace(found, parts={"recall": right / len(wanted)})
