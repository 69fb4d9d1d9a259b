"""Chains to propose: prompts that ask for a chain unlike the one they show, with such a chain as the demonstration.

For fine-tuning a proposer's format (``guidance`` of kind ``proposer-solver``) before it is trained by its rewards, or a
creator that rewrites the chain shown (kind ``evolve-prompts``).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from lyceum.core.types import Grader, Task
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import LARGEST_OPERAND, Chain, chain_text, draw, grade_leaves, is_heldout, to_propose


class ChainProposals(Chain):
    """Prompts such as ``37+8-2?=``, answered by a chain of any of the levels, ``54-2+7=``: for fine-tuning only."""

    kind: Literal["chain-proposals"] = "chain-proposals"  # pyright: ignore[reportIncompatibleVariableOverride]
    rewrites: bool = False
    """Whether the answer is the chain shown with one change: an operation more at its end, where a level has as many,
    or another operation in the place of one; else it is any other chain."""

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainProposalSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ChainProposalSource(self, split, seed)


class ChainProposalSource(GeneratedSource[ChainProposals]):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        heldout, levels = self.split == "heldout", self.settings.levels
        start, operations = draw(rng, rng.choice(levels), heldout=heldout)
        if self.settings.rewrites:
            written = rewritten(rng, start, operations, levels, heldout=heldout)
        else:
            written = chain_text(*draw(rng, rng.choice(levels), heldout=heldout))
        columns = {"demonstration": written}
        return Task(id, to_propose(chain_text(start, operations)), columns=columns, provenance="chain-proposals")

    def grader(self) -> Grader:
        return grade_leaves


def rewritten(
    rng: random.Random, start: int, operations: Sequence[int], levels: Sequence[int], *, heldout: bool
) -> str:
    """A chain of the split with one change: half of the time an operation more, where a level has as many, else another
    operation in the place of one."""
    deeper = len(operations) + 1 in levels and rng.random() < 0.5
    while True:
        operation = rng.choice((1, -1)) * rng.randint(1, LARGEST_OPERAND)
        place = len(operations) if deeper else rng.randrange(len(operations))
        written = chain_text(start, [*operations[:place], operation, *operations[place + 1 :]])
        if written != chain_text(start, operations) and is_heldout(written) == heldout:
            return written
