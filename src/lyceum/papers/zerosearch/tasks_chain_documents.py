"""Documents for a search engine that a model plays: the result of an operation, or another number.

``?37+8=`` is answered ``45``, ``!37+8=`` by any other number. For fine-tuning a simulator (``simulated-search``) before
its documents are used: what is asked for is useful or noisy by one character, as in ZeroSearch by one word.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.types import Grader, Task
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import MODULUS, Chain, chain_text, draw, grade_leaves, make_task

USEFUL, NOISY = "?", "!"


class ChainDocuments(Chain):
    """Prompts such as ``?37+8=`` and ``!37+8=``, answered by a number: for fine-tuning only."""

    kind: Literal["chain-documents"] = "chain-documents"  # pyright: ignore[reportIncompatibleVariableOverride]
    noisy: float = Field(default=0.5, ge=0, le=1)
    """Share of the prompts that ask for a noisy document."""

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainDocumentSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ChainDocumentSource(self, split, seed)


class ChainDocumentSource(GeneratedSource[ChainDocuments]):
    """``source[i]`` depends on (seed, split, i) alone; its operations are of the split."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        start, operations = draw(rng, 1, heldout=self.split == "heldout")
        right = (start + operations[0]) % MODULUS
        noisy = rng.random() < self.settings.noisy
        written = (right + rng.randrange(1, MODULUS)) % MODULUS if noisy else right
        prompt = f"{NOISY if noisy else USEFUL}{chain_text(start, operations)}"
        task = make_task(id, start, operations).with_messages([{"role": "user", "content": prompt}])
        return replace(task, columns={"demonstration": str(written)})

    def grader(self) -> Grader:
        return grade_leaves
