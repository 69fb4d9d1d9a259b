"""Chains to rewrite: ``37+8-2=<`` is answered by an easier one, ``37+8=``, ``37+8-2=?`` by another one, ``37+8+6=``.

For fine-tuning the small base on the form that guidance ``restructure`` asks for.
"""

from __future__ import annotations

import random
from typing import Literal

from lyceum.core.types import Grader, Split, Task
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import LARGEST_OPERAND, Chain, chain_text, draw, grade_leaves

EASIER, OTHER = "<", "?"


class ChainRewritings(Chain):
    """Prompts for both ways to rewrite a chain, in turn: for fine-tuning only."""

    kind: Literal["chain-rewritings"] = "chain-rewritings"  # pyright: ignore[reportIncompatibleVariableOverride]
    levels: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)

    def build(self, split: Split, seed: int) -> ChainRewritingsSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ChainRewritingsSource(self, split, seed)


class ChainRewritingsSource(GeneratedSource[ChainRewritings]):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        levels = self.settings.levels
        start, operations = draw(rng, levels[index // 2 % len(levels)], heldout=self.split == "heldout")
        easier = index % 2 == 0
        if easier:
            written = operations[:-1] or operations
        else:
            place = rng.randrange(len(operations))
            other = rng.choice((1, -1)) * rng.randint(1, LARGEST_OPERAND)
            written = [*operations[:place], other, *operations[place + 1 :]]
        prompt = f"{chain_text(start, operations)}{EASIER if easier else OTHER}"
        columns = {"demonstration": chain_text(start, written)}
        return Task(id, ({"role": "user", "content": prompt},), columns=columns, provenance="chain-rewritings")

    def grader(self) -> Grader:
        return grade_leaves
