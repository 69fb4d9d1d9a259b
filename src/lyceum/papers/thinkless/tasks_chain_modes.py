"""Chains answered in two modes: ``T`` and the worked chain, or ``S`` and the answer at once.

For fine-tuning the small base, which knows one mode alone, before it learns by ``degrpo`` which one a task needs:
``37+8-2=`` is answered ``T37+8=45-2=43#43`` and ``S#43``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from lyceum.core.types import Task
from lyceum.tasks.base import check_index
from lyceum.tasks.chain import Chain, ChainSource

THINK, SHORT = "T", "S"
"""The first token of a completion, which says its mode."""


class ChainModes(Chain):
    """The tasks of kind ``chain``, each twice, with a demonstration in either mode: for fine-tuning only."""

    kind: Literal["chain-modes"] = "chain-modes"  # pyright: ignore[reportIncompatibleVariableOverride]

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainModesSource:
        return ChainModesSource(self, split, seed)


class ChainModesSource(ChainSource):
    """Tasks 2i and 2i + 1 are the same chain, worked and answered at once."""

    def __getitem__(self, index: int) -> Task:
        check_index("chain-modes", index, len(self))
        task = super().__getitem__(index // 2)
        short = index % 2 == 1
        text = f"{SHORT}#{task.answer}" if short else THINK + str(task.columns["demonstration"])
        columns = {**task.columns, "demonstration": text}
        return replace(task, id=f"{task.id}/{'short' if short else 'think'}", columns=columns)
