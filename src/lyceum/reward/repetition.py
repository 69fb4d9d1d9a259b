"""Repetition penalty, by the share of n-grams that occurred before."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, ShapingGrader, Task, TaskSource
from lyceum.reward.base import each_with_verdict


class Repetition(RewardSettings):
    """0 where no n-gram occurs twice, down to almost -1 where all are the same."""

    after_verdict: ClassVar[bool] = True

    kind: Literal["repetition"] = "repetition"
    ngram: int = Field(20, ge=1)
    """Length of the n-grams, in words or tokens."""
    unit: Literal["word", "token"] = "word"
    """Unit of the n-grams: words between white space, in lower case, or the model's tokens (for languages without
    spaces)."""
    wrong_only: bool = True
    """Penalise only incorrect answers."""

    def build(self, source: TaskSource) -> ShapingGrader:
        return each_with_verdict(self._penalty)

    def _penalty(self, task: Task, leaf: Node, verdict: bool | None) -> Grade:
        return Grade(0.0 if verdict and self.wrong_only else -repeated_share(self._pieces(leaf), self.ngram))

    def _pieces(self, leaf: Node) -> Sequence[Hashable]:
        return leaf.completion.lower().split() if self.unit == "word" else leaf.completion_tokens


def repeated_share(pieces: Sequence[Hashable], n: int) -> float:
    """Share of n-grams that are not the first of their kind: 1 - distinct / all, without unit; 0 below n pieces.

    Source:
        Yeo et al., arXiv:2502.03373, section on the repetition penalty; VL-Cogito's code (n = 20, weight 0.5).
    """
    grams = [tuple(pieces[i : i + n]) for i in range(len(pieces) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
