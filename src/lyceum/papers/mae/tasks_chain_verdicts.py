"""Judgements of questions and answers about chains, as guidance ``proposer-solver-judge`` asks for them.

``37+8=@`` is answered 1, since this is a chain, ``37+=@`` 0; and after a chain, an attempt at it and ``@`` the
verdict is 1 where the attempt is correct, else 0. For fine-tuning the small base on the form.
"""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from lyceum.core.types import Grader, Split, Task
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import Chain, chain_text, draw, grade_leaves, make_task
from lyceum.tasks.chain_demonstrations import write

ASKED = "@"


class ChainVerdicts(Chain):
    """Prompts for a judge, with its verdict in ``columns["demonstration"]``: for fine-tuning only."""

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
            place = rng.randrange(len(chain))
            text = chain if good else chain[:place] + rng.choice("+-=?") + chain[place + 1 :]
            verdict = str(int(text == chain))
            messages = ({"role": "user", "content": f"{text}{ASKED}"},)
        else:
            task = make_task(id, start, operations)
            attempt = write(rng, start, operations, slip=0.0 if good else 0.5, stop=0.0, corrected=0.0)
            verdict = str(int(attempt == task.columns["demonstration"]))
            turns = ({"role": "assistant", "content": attempt}, {"role": "user", "content": ASKED})
            messages = (*task.messages, *turns)
        return Task(id, messages, verdict, {"demonstration": verdict}, provenance="chain-verdicts")

    def grader(self) -> Grader:
        return grade_leaves
