"""Chains to write an abstraction for: ``37+8-2+5=|`` is answered by what may help, such as ``|45,43`` or ``:3``.

For fine-tuning an abstractor (guidance ``abstractions``) on the form of the chain's own hints, which the base model
reads before the ``=``: first results, how many steps there are, or how one goes about it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from lyceum.core.types import Task
from lyceum.tasks.chain import Chain, ChainSource

ASK = "|"
"""What the prompt says after the chain."""


class ChainAbstractions(Chain):
    """The tasks of kind ``chain``, asked for a hint of any tier and not for the answer: for fine-tuning only."""

    kind: Literal["chain-abstractions"] = "chain-abstractions"  # pyright: ignore[reportIncompatibleVariableOverride]
    levels: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainAbstractionsSource:
        return ChainAbstractionsSource(self, split, seed)


class ChainAbstractionsSource(ChainSource):
    """Which hint is demonstrated depends on the task's id alone."""

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        hint = random.Random(f"{task.id}/abstraction").choice(task.columns["hints"])
        asked = task.with_messages([{"role": "user", "content": f"{task.messages[-1]['content']}{ASK}"}])
        return replace(asked, columns={**task.columns, "demonstration": hint["text"]})
