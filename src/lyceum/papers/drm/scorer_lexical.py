"""Relevance without a model: what texts share, rare pieces counting more."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.types import Scorer, TaskSource
from lyceum.papers.drm._pairs import PairSettings
from lyceum.reward.scorer.base import in_order, question_of

MOST_CHARACTERS = 20_000
"""Maximum characters that are compared of a text."""


class LexicalScorer(PairSettings):
    """What the texts have in common: character n-grams, or characters in their order."""

    kind: Literal["lexical"] = "lexical"
    measure: Literal["cosine", "in-order"] = "cosine"
    """``cosine``: of the n-grams, weighted by their rarity in the tasks' prompts (tf-idf). ``in-order``: how much of
    question and reasoning is the same in the same order, less where something is left out, repeated or moved."""
    shortest: int = Field(1, ge=1, le=8)
    """Characters of the shortest pieces that are compared."""
    longest: int = Field(3, ge=1, le=8)
    """Characters of the longest pieces that are compared."""
    tasks: int = Field(500, ge=1, le=10_000)
    """Number of tasks whose prompts say how rare a piece is."""
    answer: float = 1.0
    """Weight of the answer's alignment with the reasoning; 0 with ``in-order``."""

    @model_validator(mode="after")
    def _an_answer_is_shorter(self) -> LexicalScorer:
        if self.measure == "in-order" and self.answer:
            raise ValueError(
                f"answer: got {self.answer:g} with measure 'in-order', which would reward a reasoning no longer than "
                "its answer; allowed: 0"
            )
        return self

    def build(self, source: TaskSource) -> Scorer:
        return self.scorer(SharedPieces(self, source))


class SharedPieces:
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
        every = 1 + self.n_prompts
        weight = {
            piece: (1 + math.log(count)) * (1 + math.log(every / (1 + self.prompts_with[piece])))
            for piece, count in Counter(self.pieces(text)).items()
        }
        length = math.hypot(*weight.values()) or 1.0
        return {piece: value / length for piece, value in weight.items()}

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        if self.settings.measure == "in-order":
            return [in_order(a[:MOST_CHARACTERS], b[:MOST_CHARACTERS]) for a, b in pairs]
        # Each text once: a group's trajectories share their question.
        vectors = {text: self.vector(text) for text in dict.fromkeys(text for pair in pairs for text in pair)}
        return [sum(w * vectors[b].get(piece, 0.0) for piece, w in vectors[a].items()) for a, b in pairs]
