"""Chains whose prompt shows the answer, ``37+8-2#43=``, with the chain that leads there as the demonstration.

For fine-tuning the small base, which was not trained to explain an answer, before ``guidance`` of kind
``self-explanation``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from lyceum.core.types import Hint, Task
from lyceum.tasks.chain import Chain, ChainSource, hinted


class ChainExplanations(Chain):
    """Chains of any of the levels with the answer in the prompt: for fine-tuning only."""

    kind: Literal["chain-explanations"] = "chain-explanations"  # pyright: ignore[reportIncompatibleVariableOverride]

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainExplanationSource:
        return ChainExplanationSource(self, split, seed)


class ChainExplanationSource(ChainSource):
    """The tasks of kind ``chain``, under another prompt and id."""

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        return replace(hinted(task, Hint("answer", f"#{task.answer}")), id=f"{task.id}/explained")
