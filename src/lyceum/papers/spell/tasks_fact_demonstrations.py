"""Demonstrations of SPELL's three roles, with mistakes: for fine-tuning only.

A questioner reads a few facts, perhaps with earlier questions, and writes a question, works it out and states the
answer, in one spelling or the other; a responder answers one from all facts; a verifier says of two answers whether
they mean the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from lyceum.core.types import Split, Task
from lyceum.papers.spell._facts import asked, document, spelled, to_ask, to_judge, worked
from lyceum.papers.spell.tasks_fact_documents import (
    FactDocuments,
    FactDocumentsSource,
    drawn_facts,
    drawn_question,
)
from lyceum.tasks.chain import MODULUS


class FactDemonstrations(FactDocuments):
    """A third of them is of each role."""

    kind: Literal["fact-demonstrations"] = "fact-demonstrations"  # pyright: ignore[reportIncompatibleVariableOverride]
    slip: float = Field(default=0.05, ge=0, le=1)
    """Probability that a result is 10 too large."""
    ungrounded: float = Field(default=0.15, ge=0, le=1)
    """Probability that a questioner asks about numbers that it names itself."""
    spelled: float = Field(default=0.3, ge=0, le=1)
    """Share of reference answers in the other spelling."""
    misjudged: float = Field(default=0.15, ge=0, le=1)
    """Probability that a verifier says the opposite of what is right."""

    def build(self, split: Split, seed: int) -> FactDemonstrationsSource:
        return FactDemonstrationsSource(self, split, seed)


class FactDemonstrationsSource(FactDocumentsSource):
    """``source[i]`` depends on (seed, split, i) alone."""

    settings: FactDemonstrations

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        prompt, text = (self.questioning, self.responding, self.verifying)[index % 3](rng)
        return Task(
            id, ({"role": "user", "content": prompt},), None, {"demonstration": text}, provenance="demonstrations"
        )

    def questioning(self, rng: random.Random) -> tuple[str, str]:
        of = self.settings
        earlier = rng.choice((0, 0, 1, 2, 3))
        facts = drawn_facts(rng, min(of.facts, 2 + earlier * rng.randint(1, 2)))
        names = list(facts)
        memory = list[tuple[str, str]]()
        for _ in range(earlier):
            question = drawn_question(rng, rng.choices(names, k=rng.choice(of.levels[: len(names)])))
            memory.append((question, self.answer(rng, self.work(rng, question, facts)[1])))
        if rng.random() < of.ungrounded:
            facts, names = {}, [str(rng.randint(1, 9)) for _ in range(rng.randint(1, 3))]
        question = drawn_question(rng, rng.choices(names, k=rng.choice(of.levels[: len(names)])))
        shown = document(facts, facts) if facts else document(other := drawn_facts(rng, 2), other)
        text, number = self.work(rng, question, facts)
        return to_ask(shown, memory), f"{question}={text}#{self.answer(rng, number)}"

    def responding(self, rng: random.Random) -> tuple[str, str]:
        facts = drawn_facts(rng, self.settings.facts)
        question = drawn_question(rng, rng.choices(list(facts), k=rng.choice(self.settings.levels)))
        text, number = self.work(rng, question, facts)
        if rng.random() < 0.1:  # without its documents, one that guesses
            return asked("", question), f"{text}#{number}"
        return asked(document(facts, facts), question), f"{text}#{number}"

    def verifying(self, rng: random.Random) -> tuple[str, str]:
        number = rng.randrange(MODULUS)
        other = (
            number if rng.random() < 0.5 else (number + rng.choice((10, -10, 1, -1, rng.randrange(2, 98)))) % MODULUS
        )
        names = list(drawn_facts(rng, rng.randint(1, 4)))
        says = (other == number) != (rng.random() < self.settings.misjudged)
        return to_judge(drawn_question(rng, names), self.answer(rng, number), str(other)), "y" if says else "n"

    def work(self, rng: random.Random, question: str, facts: Mapping[str, int]) -> tuple[str, int]:
        found = worked(question, facts, slips=rng, slip=self.settings.slip)
        assert found is not None
        return found

    def answer(self, rng: random.Random, number: int) -> str:
        """A reference answer, in one spelling or the other."""
        return spelled(number) if rng.random() < self.settings.spelled else str(number)
