"""Strategies over independent samples: one at temperature 0, the best of N, and votes among N."""

from __future__ import annotations

from typing import ClassVar, Literal

from lyceum.rollout.flat import Flat
from lyceum.strategy.base import Growth, Strategy
from lyceum.strategy.choice import Choice
from lyceum.types import Sampling


class Greedy(Strategy, room="strategy"):
    """The most likely token each time: what every search is to be better than."""

    kind: Literal["greedy"] = "greedy"
    scales: ClassVar[bool] = False
    choose: Choice = "first"
    """There is one."""

    def growth(self, size: int, sampling: Sampling) -> Growth:
        return Flat(samples=1, sampling=sampling.model_copy(update={"temperature": 0.0}))


class Samples(Strategy):
    """N independent samples. Of a size, all strategies of this family choose among the same ones."""

    def growth(self, size: int, sampling: Sampling) -> Growth:
        return Flat(samples=size, sampling=sampling)


class BestOfN(Samples, room="strategy"):
    """The sample of the greatest value. Source: Cobbe et al., arXiv:2110.14168, section 4."""

    kind: Literal["best-of-n"] = "best-of-n"
    choose: Choice = "best"
    """How the answer is chosen among the samples."""


class Majority(Samples, room="strategy"):
    """The most frequent answer: self-consistency. Source: Wang et al., arXiv:2203.11171, section 2."""

    kind: Literal["majority"] = "majority"
    choose: Choice = "majority"
    """How the answer is chosen among the samples."""


class WeightedMajority(Samples, room="strategy"):
    """The answer with the greatest sum of its samples' values. Source: Li et al., arXiv:2206.02336, equation 2."""

    kind: Literal["weighted-majority"] = "weighted-majority"
    choose: Choice = "weighted-majority"
    """How the answer is chosen among the samples."""
