"""Documents of facts with a question about them: ``A8,B2,C5?37+A-C=`` is answered ``37+A8=45-C5=40#40``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Split, Task
from lyceum.papers.spell._facts import LETTERS, asked, document, truth, worked
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import MODULUS, grade_leaves, is_heldout

FACTS = "facts"
"""Column with a task's documents: letter -> value."""


class FactDocuments(TasksSettings):
    """The question is a rule's, for evaluating and for plain training; the level is how many facts it needs."""

    kind: Literal["fact-documents"] = "fact-documents"
    facts: int = Field(default=6, ge=2, le=len(LETTERS))
    """Facts of each task's documents."""
    levels: tuple[int, ...] = Field(default=(1, 2, 3, 4, 5), min_length=1)
    """Facts that a rule's question needs; tasks cycle through them."""
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split."""

    def build(self, split: Split, seed: int) -> FactDocumentsSource:
        return FactDocumentsSource(self, split, seed)


class FactDocumentsSource(GeneratedSource[FactDocuments]):
    """``source[i]`` depends on (seed, split, i) alone. A question with its documents is always of the same split."""

    def __getitem__(self, index: int) -> Task:
        id, of = self.key(index), self.settings
        rng, level = random.Random(id), of.levels[index % len(of.levels)]
        while True:
            facts = drawn_facts(rng, of.facts)
            question = drawn_question(rng, rng.choices(list(facts), k=level))
            prompt = asked(document(facts, facts), question)
            if is_heldout(prompt) == (self.split == "heldout"):
                break
        text, answer = worked(question, facts) or ("", 0)
        columns = {FACTS: dict(facts), "level": level, "demonstration": f"{text}#{answer}"}
        return Task(
            id, ({"role": "user", "content": prompt},), str(truth(question, facts)), columns, provenance=of.kind
        )

    def grader(self) -> Grader:
        return grade_leaves


def drawn_facts(rng: random.Random, n: int) -> Mapping[str, int]:
    """So many letters, in no order, each with a value of 1 to 9."""
    return {letter: rng.randint(1, 9) for letter in rng.sample(LETTERS, n)}


def drawn_question(rng: random.Random, names: list[str]) -> str:
    """A question that adds or subtracts what is named, in this order."""
    return f"{rng.randrange(MODULUS)}{''.join(rng.choice('+-') + name for name in names)}"
