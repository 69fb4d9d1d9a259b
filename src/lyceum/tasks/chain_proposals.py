"""Chains to propose: prompts that ask for a chain unlike the one they show, with such a chain as the demonstration.

For fine-tuning a proposer's format (``guidance`` of kind ``proposer-solver``) before it is trained by its rewards.
"""

from __future__ import annotations

import random
from typing import Literal

from lyceum.core.types import Grader, Task
from lyceum.tasks.base import Source
from lyceum.tasks.chain import Chain, chain_text, draw, grade_leaves, to_propose


class ChainProposals(Chain):
    """Prompts such as ``37+8-2?=``, answered by a chain of any of the levels, ``54-2+7=``: for fine-tuning only."""

    kind: Literal["chain-proposals"] = "chain-proposals"  # pyright: ignore[reportIncompatibleVariableOverride]

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainProposalSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ChainProposalSource(self, split, seed)


class ChainProposalSource(Source):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __init__(self, settings: ChainProposals, split: Literal["train", "heldout"], seed: int) -> None:
        self.settings, self.split, self.seed = settings, split, seed

    def __len__(self) -> int:
        return self.settings.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < len(self):
            raise IndexError(f"chain-proposals: task {index}; there are 0 to {len(self) - 1}")
        id = f"chain-proposals/{self.split}/{self.seed}/{index}"
        rng = random.Random(id)
        shown, written = (
            chain_text(*draw(rng, rng.choice(self.settings.levels), heldout=self.split == "heldout")) for _ in range(2)
        )
        return Task(id, to_propose(shown), columns={"demonstration": written}, provenance="chain-proposals")

    def grader(self) -> Grader:
        return grade_leaves
