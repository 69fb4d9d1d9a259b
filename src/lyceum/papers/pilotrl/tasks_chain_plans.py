"""Chains to write a plan for: ``37+8-2+5=|`` is answered by the results that one comes through, ``|45,43``.

For fine-tuning a planner on the form of the plans that phase ``follow`` gives (guidance ``global-plan``).
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from lyceum.core.types import Split, Task
from lyceum.tasks.chain import Chain, ChainSource

ASK = "|"
"""What the prompt says after the chain."""


class ChainPlans(Chain):
    """The tasks of kind ``chain``, asked for a plan and not for the answer: for fine-tuning only."""

    kind: Literal["chain-plans"] = "chain-plans"  # pyright: ignore[reportIncompatibleVariableOverride]
    levels: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)

    def build(self, split: Split, seed: int) -> ChainPlansSource:
        return ChainPlansSource(self, split, seed)


class ChainPlansSource(ChainSource):
    """Which of a task's plans is demonstrated depends on its id alone."""

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        plans = [hint["text"] for hint in task.columns["hints"] if hint["tier"] == "solution"]
        asked = task.with_messages([{"role": "user", "content": f"{task.messages[-1]['content']}{ASK}"}])
        demonstration = random.Random(f"{task.id}/plan").choice(plans)
        return replace(asked, columns={**task.columns, "demonstration": demonstration})
