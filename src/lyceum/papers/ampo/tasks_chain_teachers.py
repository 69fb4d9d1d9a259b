"""Chains with solutions of several teachers, all correct, which write in different ways.

steps       37+8=45-2=43#43             what the small base model was trained on
corrector   37+8=55!45-2=43#43          a slip, corrected at once: rare in its data
backtracker 37+8=55-2=53?1:45-2=43#43   a slip, noticed at the end: the text goes back to step 1
restarter   37+8=55?0:37+8=45-2=43#43   a slip, after which the chain is begun again
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from lyceum.core.types import Task
from lyceum.tasks.chain import MODULUS, Chain, ChainSource, completion_text, results_of
from lyceum.tasks.chain_demonstrations import SLIP


class ChainTeachers(Chain):
    """Chains with the solutions of four teachers in ``columns["demonstrations"]``."""

    kind: Literal["chain-teachers"] = "chain-teachers"  # pyright: ignore[reportIncompatibleVariableOverride]

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainTeacherSource:
        return ChainTeacherSource(self, split, seed)


class ChainTeacherSource(ChainSource):
    """The tasks of kind ``chain``, ids included, with more columns."""

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        written = taught(random.Random(f"{task.id}/teachers"), task.columns["start"], task.columns["operations"])
        demonstrations = [{"teacher": teacher, "text": text} for teacher, text in written.items()]
        return replace(task, columns={**task.columns, "demonstrations": demonstrations})


def taught(rng: random.Random, start: int, operations: Sequence[int]) -> dict[str, str]:
    """The teachers' solutions of a chain, in random order; each but ``steps`` has one slip, at a random step."""
    results = results_of(start, operations)
    right = completion_text(start, operations, results)
    steps = [f"{operand:+d}={result}" for operand, result in zip(operations, results, strict=True)]
    at = rng.randrange(len(operations))
    before = str(start) + "".join(steps[:at])
    after = "".join(steps[at + 1 :]) + f"#{results[-1]}"
    slipped = f"{operations[at]:+d}={(results[at] + SLIP) % MODULUS}"
    wrong = [(result + SLIP) % MODULUS for result in results[at:]]  # what follows from the slip
    went_on = "".join(f"{operand:+d}={result}" for operand, result in zip(operations[at:], wrong, strict=True))
    solutions = {
        "steps": right,
        "corrector": f"{before}{slipped}!{results[at]}{after}",
        "backtracker": f"{before}{went_on}?{at + 1}:{results[at]}{after}",
        "restarter": f"{before}{slipped}?0:{right}",
    }
    return dict(rng.sample(list(solutions.items()), len(solutions)))
