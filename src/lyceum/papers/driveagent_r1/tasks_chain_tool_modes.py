"""Chains in two modes: ``S37+8=45-2=43#43`` by oneself, ``T37+8?45-2?43#43`` with a tool that answers each ``?``.

For fine-tuning the small base on both before it learns which one a task needs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from lyceum.core.types import Task
from lyceum.tasks.base import check_index
from lyceum.tasks.chain import Chain, ChainSource

ALONE, TOOL = "S", "T"
"""The first token of a completion, which says its mode."""


class ChainToolModes(Chain):
    """The tasks of kind ``chain``, each twice, with a demonstration in either mode: for fine-tuning only."""

    kind: Literal["chain-tool-modes"] = "chain-tool-modes"  # pyright: ignore[reportIncompatibleVariableOverride]

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainToolModesSource:
        return ChainToolModesSource(self, split, seed)


class ChainToolModesSource(ChainSource):
    """Tasks 2i and 2i + 1 are the same chain, worked and asked of the tool."""

    def __getitem__(self, index: int) -> Task:
        check_index("chain-tool-modes", index, len(self))
        task = super().__getitem__(index // 2)
        with_tool = index % 2 == 1
        worked = str(task.columns["demonstration"])
        text = TOOL + worked.replace("=", "?") if with_tool else ALONE + worked
        columns = {**task.columns, "demonstration": text}
        return replace(task, id=f"{task.id}/{'tool' if with_tool else 'alone'}", columns=columns)
