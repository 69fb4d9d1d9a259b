"""Judgements of questions and answers about chains, as guidance ``proposer-solver-judge`` asks for them.

``37+8=@`` is answered ``@1``, since this is a chain, ``37+=@`` ``@0``; after a chain, an attempt at it and ``@`` the
judge works the chain out itself before it gives its verdict on the attempt, ``37+8=45#45@1``. For fine-tuning the small
base on the form.
"""

from __future__ import annotations

import random
import re
from typing import Literal

from pydantic import Field

from lyceum.core.types import Grader, Split, Task
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import Chain, chain_text, draw, grade_leaves, make_task
from lyceum.tasks.chain_demonstrations import write

ASKED = "@"
"""What asks for a verdict, and stands before it."""
_CHAIN = re.compile(r"(?:0|[1-9][0-9]?)(?:[+-][1-9])+=")
_CHARACTERS = "0123456789+-=?#!@|:"


class ChainVerdicts(Chain):
    """Prompts for a judge, with its judgement in ``columns["demonstration"]``: for fine-tuning only."""

    kind: Literal["chain-verdicts"] = "chain-verdicts"  # pyright: ignore[reportIncompatibleVariableOverride]
    questions: float = Field(default=0.3, ge=0, le=1)
    """Share of prompts that show a question; the others show an answer too."""

    def build(self, split: Split, seed: int) -> ChainVerdictsSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ChainVerdictsSource(self, split, seed)


class ChainVerdictsSource(GeneratedSource[ChainVerdicts]):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        levels = self.settings.levels
        start, operations = draw(rng, levels[index % len(levels)], heldout=self.split == "heldout")
        chain, good = chain_text(start, operations), rng.random() < 0.5
        if rng.random() < self.settings.questions:
            text = chain if good else damaged(rng, chain)
            right, worked = is_chain(text), ""
            messages = ({"role": "user", "content": f"{text}{ASKED}"},)
        else:
            task = make_task(id, start, operations)
            attempt = write(rng, start, operations, slip=0.0 if good else 0.5, stop=0.0, corrected=0.2)
            if not good and rng.random() < 0.3:
                attempt = damaged(rng, attempt)
            right, worked = attempt.rpartition("#")[2] == task.answer, task.columns["demonstration"]
            turns = ({"role": "assistant", "content": attempt}, {"role": "user", "content": ASKED})
            messages = (*task.messages, *turns)
        verdict = str(int(right))
        return Task(id, messages, verdict, {"demonstration": f"{worked}{ASKED}{verdict}"}, provenance="chain-verdicts")

    def grader(self) -> Grader:
        return grade_leaves


def is_chain(text: str) -> bool:
    """Whether a text is a chain to the letter, however long: ``37+8-2=``."""
    return _CHAIN.fullmatch(text) is not None


def damaged(rng: random.Random, text: str) -> str:
    """A text with one to three characters replaced, left out or put in, or without its end; it may be a chain still."""
    if rng.random() < 0.2:
        return text[: rng.randrange(1, len(text))]
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(text))
        kept = rng.choice((place, place + 1))
        text = text[:place] + rng.choice(("", rng.choice(_CHARACTERS))) + text[kept:]
        text = text or rng.choice(_CHARACTERS)
    return text
