"""Chains to ask for after having looked them up: ``37+8-2?=`` is answered ``54-2=52+7=59#54-2+7``.

For fine-tuning a proposer (guidance ``search-self-play``) on the form: operations, each with what a tool answers, and
the question that they answer.
"""

from __future__ import annotations

import random
from typing import Literal

from lyceum.core.types import Grader, Split, Task
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import Chain, chain_text, completion_text, draw, grade_leaves, results_of, to_propose


class ChainSearches(Chain):
    """Prompts that ask for a chain unlike the one they show, with a search for it: for fine-tuning only."""

    kind: Literal["chain-searches"] = "chain-searches"  # pyright: ignore[reportIncompatibleVariableOverride]

    def build(self, split: Split, seed: int) -> ChainSearchesSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ChainSearchesSource(self, split, seed)


class ChainSearchesSource(GeneratedSource[ChainSearches]):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        heldout, levels = self.split == "heldout", self.settings.levels
        shown, asked = (draw(rng, rng.choice(levels), heldout=heldout) for _ in range(2))
        worked = completion_text(*asked, results_of(*asked)).partition("#")[0]
        columns = {"demonstration": f"{worked}#{chain_text(*asked).removesuffix('=')}"}
        return Task(id, to_propose(chain_text(*shown)), columns=columns, provenance="chain-searches")

    def grader(self) -> Grader:
        return grade_leaves
