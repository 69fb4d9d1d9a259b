"""Chains whose results are looked up and judged: ``37+8=45y-2=91n43y#43``, as environment ``judged-search`` answers.

For fine-tuning the small base on the form; a share of the judgements is wrong, so that there is something to learn.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.types import Task
from lyceum.tasks.chain import MODULUS, Chain, ChainSource


class ChainJudged(Chain):
    """The tasks of kind ``chain``, with a demonstration that judges each result: for fine-tuning only."""

    kind: Literal["chain-judged"] = "chain-judged"  # pyright: ignore[reportIncompatibleVariableOverride]
    wrong: float = Field(default=0.3, ge=0, le=1)
    """Probability that a result is another number than the right one."""
    careless: float = Field(default=0.3, ge=0, le=1)
    """Probability that a judgement says the opposite of what is right."""

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainJudgedSource:
        return ChainJudgedSource(self, split, seed)


class ChainJudgedSource(ChainSource):
    """What a demonstration says depends on the task's id alone."""

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        settings = self.settings
        assert isinstance(settings, ChainJudged)
        rng = random.Random(f"{task.id}/judged")
        value = int(task.columns["start"])
        text = str(value)
        for operand in task.columns["operations"]:
            text += f"{operand:+d}="
            right = (value + operand) % MODULUS
            while True:
                wrong = rng.random() < settings.wrong
                shown = (right + rng.randrange(1, MODULUS)) % MODULUS if wrong else right
                kept = (rng.random() < settings.careless) == wrong
                text += f"{shown}{'y' if kept else 'n'}"
                if kept:
                    break
            value = shown
        return replace(task, columns={**task.columns, "demonstration": f"{text}#{value}"})
