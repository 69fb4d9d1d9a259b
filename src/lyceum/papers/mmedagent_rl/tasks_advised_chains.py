"""Chains with the answers of several advisers in the prompt, all, some or none of them right.

``37+8-2;43;43;53=`` is the chain ``37+8-2=`` after three advisers. A wrong answer is another number, and advisers are
wrong apart from each other. Demonstrations take over what most advisers say (``#43``), right or wrong, or work the
chain (``37+8=45-2=43#43``), so that a model knows both before it learns when to do which.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from pydantic import Field

from lyceum.core.types import Task
from lyceum.tasks.base import check_index
from lyceum.tasks.chain import MODULUS, Chain, ChainSource

Trust = Literal["easy", "medium", "hard"]
Answer = TypeVar("Answer", int, str)
BEFORE = ";"
"""What stands before an adviser's answer."""


class AdvisedChains(Chain):
    """The tasks of kind ``chain`` with advice, and a demonstration of either way to treat it."""

    kind: Literal["advised-chains"] = "advised-chains"  # pyright: ignore[reportIncompatibleVariableOverride]
    levels: tuple[int, ...] = (2, 3, 4)
    advisers: int = Field(default=3, ge=2, le=9)
    """Answers in each prompt."""
    trust: tuple[Trust, ...] = Field(default=("easy", "medium", "hard"), min_length=1)
    """Tasks in turn: ``easy`` where all advisers are right, ``medium`` where some are, ``hard`` where none is."""
    follows: float = Field(default=0.5, ge=0, le=1)
    """Share of the demonstrations that say what most advisers say; the others work the chain."""

    def build(self, split: Literal["train", "heldout"], seed: int) -> AdvisedChainsSource:
        return AdvisedChainsSource(self, split, seed)


class AdvisedChainsSource(ChainSource):
    """Advice and demonstration depend on the task's id alone. Columns ``advice``, ``majority`` and ``trust``."""

    settings: AdvisedChains

    def __getitem__(self, index: int) -> Task:
        check_index("advised-chains", index, len(self))
        settings = self.settings
        task = super().__getitem__(index)
        # All levels at one trust, then all at the next.
        trust = settings.trust[index // len(settings.levels) % len(settings.trust)]
        rng = random.Random(f"{task.id}/advice")
        advice = advised(rng, int(str(task.answer)), settings.advisers, trust)
        majority = most_say(advice)
        chain = str(task.messages[-1]["content"]).removesuffix("=")
        columns = {**task.columns, "advice": advice, "majority": majority, "trust": trust}
        if rng.random() < settings.follows:
            columns["demonstration"] = f"#{majority}"
        content = f"{chain}{''.join(f'{BEFORE}{answer}' for answer in advice)}="
        return replace(task.with_messages([{"role": "user", "content": content}]), columns=columns)


def advised(rng: random.Random, answer: int, advisers: int, trust: Trust) -> list[int]:
    """The advisers' answers, modulo 100, in random order."""
    right = {"easy": advisers, "hard": 0}.get(trust, rng.randint(1, advisers - 1))
    wrong = [(answer + rng.randrange(1, MODULUS)) % MODULUS for _ in range(advisers - right)]
    advice = [answer] * right + wrong
    rng.shuffle(advice)
    return advice


def most_say(advice: Sequence[Answer]) -> Answer:
    """The answer that most advisers give; ties go to the first."""
    return Counter(advice).most_common(1)[0][0]
