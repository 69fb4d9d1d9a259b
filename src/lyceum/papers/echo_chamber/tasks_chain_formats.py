"""Chains answered in one of three formats, in known proportions; no prompt says which one.

``37+8-2=`` is answered step by step (``steps``: ``37+8=45-2=43#43``), by the net operation alone (``net``:
``37+6=43#43``), or at once (``answer``: ``#43``). For teaching a model a known mixture, to see which of them
reinforcement learning settles on.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Literal

from pydantic import Field, field_validator

from lyceum.core.types import Task
from lyceum.tasks.chain import Chain, ChainSource

Format = Literal["steps", "net", "answer"]

_RESULT = r"[+-]\d+=\d+"
_FORMS: dict[Format, re.Pattern[str]] = {
    "steps": re.compile(rf"\d+(?:{_RESULT}){{2,}}#.*"),
    "net": re.compile(rf"\d+{_RESULT}#.*"),
    "answer": re.compile(r"#.*"),
}


class ChainFormats(Chain):
    """The tasks of kind ``chain`` with a demonstration in one of three formats: for fine-tuning only."""

    kind: Literal["chain-formats"] = "chain-formats"  # pyright: ignore[reportIncompatibleVariableOverride]
    shares: dict[Format, float] = Field({"steps": 0.25, "net": 0.25, "answer": 0.5}, min_length=1)
    """How often each format is demonstrated (relative)."""

    @field_validator("shares")
    @classmethod
    def _can_be_drawn(cls, shares: dict[Format, float]) -> dict[Format, float]:
        if any(share < 0 for share in shares.values()) or not sum(shares.values()):
            raise ValueError(f"got {shares}; allowed: weights of at least 0, one of them above it")
        return shares

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainFormatsSource:
        return ChainFormatsSource(self, split, seed)


class ChainFormatsSource(ChainSource):
    """A chain's format depends on its task's id alone."""

    settings: ChainFormats

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        names, shares = zip(*self.settings.shares.items(), strict=True)
        [chosen] = random.Random(f"{task.id}/format").choices(names, shares)
        columns = {**task.columns, "format": chosen, "demonstration": written(task, chosen)}
        return replace(task, columns=columns)


def written(task: Task, form: Format) -> str:
    """The solution of a chain in one format."""
    if form == "steps":
        return str(task.columns["demonstration"])
    worked = f"{task.columns['start']}{sum(task.columns['operations']):+d}={task.answer}" if form == "net" else ""
    return f"{worked}#{task.answer}"


def format_of(completion: str) -> Format | None:
    """The format that a completion is in, right or wrong; None where it is in none of them."""
    return next((name for name, form in _FORMS.items() if form.fullmatch(completion)), None)
