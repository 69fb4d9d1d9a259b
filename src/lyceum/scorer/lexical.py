"""Relevance without a model: what texts share, rare pieces counting more."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import ScorerSettings
from lyceum.core.types import Scorer, TaskSource
from lyceum.scorer.base import PairScorer, question_of

MOST_CHARACTERS = 20_000
"""Maximum characters that are compared of a text."""


class LexicalScorer(ScorerSettings):
    """What the texts' character n-grams have in common, weighted by how rare each is in the tasks' prompts."""

    kind: Literal["lexical"] = "lexical"
    measure: Literal["cosine", "coverage"] = "cosine"
    """``cosine``: of the two texts' weights (tf-idf). ``coverage``: the share of the question's pieces that the
    reasoning has, each as often, so that a reasoning that leaves something out scores less, and a longer one no less."""
    shortest: int = Field(1, ge=1, le=8)
    """Characters of the shortest pieces that are compared."""
    longest: int = Field(3, ge=1, le=8)
    """Characters of the longest pieces that are compared."""
    tasks: int = Field(500, ge=1, le=10_000)
    """Number of tasks whose prompts say how rare a piece is."""
    question: float = 1.0
    """Weight of the reasoning's alignment with the question."""
    answer: float = 1.0
    """Weight of the answer's alignment with the reasoning; 0 with ``coverage``."""

    @model_validator(mode="after")
    def _answers_cover_nothing(self) -> LexicalScorer:
        if self.measure == "coverage" and self.answer:
            raise ValueError(
                f"answer: got {self.answer:g} with measure 'coverage', which would reward a reasoning no longer than "
                "its answer; allowed: 0"
            )
        return self

    def build(self, source: TaskSource) -> Scorer:
        return PairScorer(Shared(self, source), self.question, self.answer)


class Shared:
    """Counts the pieces of the tasks' prompts at the first question."""

    def __init__(self, settings: LexicalScorer, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    @cached_property
    def prompts_with(self) -> Counter[str]:
        """In how many of the prompts each piece occurs."""
        prompts = (self.source[i].messages for i in range(self.n_prompts))
        return Counter(piece for prompt in prompts for piece in set(self.pieces(question_of(prompt))))

    @property
    def n_prompts(self) -> int:
        return min(len(self.source), self.settings.tasks)

    def pieces(self, text: str) -> list[str]:
        low, high = sorted((self.settings.shortest, self.settings.longest))
        text = text.lower()[:MOST_CHARACTERS]
        return [text[at : at + n] for n in range(low, high + 1) for at in range(len(text) - n + 1)]

    def vector(self, text: str) -> dict[str, float]:
        """Weights of a text's pieces, of length 1.

        w = (1 + log count) (1 + log((1 + prompts) / (1 + prompts with it)))
        """
        counts = Counter(self.pieces(text))
        weight = {piece: (1 + math.log(count)) * self.rarity(piece) for piece, count in counts.items()}
        length = math.hypot(*weight.values()) or 1.0
        return {piece: value / length for piece, value in weight.items()}

    def rarity(self, piece: str) -> float:
        return 1 + math.log((1 + self.n_prompts) / (1 + self.prompts_with[piece]))

    def coverage(self, asked: str, said: str) -> float:
        """sum_p w_p min(n_p, m_p) / sum_p w_p n_p over the pieces p of the first text, n_p times in it and m_p times in
        the second; w_p is the rarity. 1 where the first has none."""
        counts, found = Counter(self.pieces(asked)), Counter(self.pieces(said))
        whole = sum(self.rarity(piece) * n for piece, n in counts.items())
        return sum(self.rarity(piece) * min(n, found[piece]) for piece, n in counts.items()) / whole if whole else 1.0

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        if self.settings.measure == "coverage":
            return [self.coverage(a, b) for a, b in pairs]
        # Each text once: a group's trajectories share their question.
        vectors = {text: self.vector(text) for text in dict.fromkeys(text for pair in pairs for text in pair)}
        return [sum(w * vectors[b].get(piece, 0.0) for piece, w in vectors[a].items()) for a, b in pairs]
