"""Accuracy as a logistic function of how much of the solution is given: item response theory, three parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

USUAL_SLOPE = 10.0
USUAL_ABILITY = -0.5
SLOPES = (1.0, 50.0)
ABILITIES = (-2.0, 1.0)
GRID = (33, 61)
PRIOR = 1e-3
GUESSING_PRIOR = 0.05

OnGrid = Float[Any, "*#grid"]
"""A number for each point of a grid, or along one of its sides, or for one point (numpy's scalar)."""


@dataclass(frozen=True)
class Curve:
    """One task's accuracy as a function of the given share of its solution.

        f(p) = b + (1 - b) / (1 + exp(-k (p + m)))

    Attributes:
        slope: k, how steeply accuracy rises with the share.
        ability: m; at the share -m accuracy is halfway between b and 1.
        guessing: b, the lower asymptote of accuracy.
    """

    slope: float
    ability: float
    guessing: float = 0.0

    def accuracy(self, share: float) -> float:
        return self.guessing + (1 - self.guessing) / (1 + math.exp(-self.slope * (share + self.ability)))

    def share_at(self, accuracy: float) -> float:
        """The share p in 0 .. 1 with f(p) = accuracy; 0 where every share gives more, 1 where every share gives less.

        p = -m + log((a - b) / (1 - a)) / k
        """
        if accuracy <= self.guessing:
            return 0.0
        share = -self.ability + math.log((accuracy - self.guessing) / (1 - accuracy)) / self.slope
        return min(1.0, max(0.0, share))


def fit(share: Sequence[float], accuracy: Sequence[float]) -> Curve:
    """The curve with the least squared error over a task's rounds; rounds at the same share use their mean accuracy.

        min_{k, m, b} sum_j (f(p_j) - mean{a_w: p_w = p_j})^2

    One or two rounds underdetermine the three parameters: of the curves that fit, the one nearest to a typical one (k
    10, m -0.5, b 0) is taken, by a penalty that is small beside the errors. For each k and m the best b is known, so
    that k and m are searched on a grid, and on two finer ones around the best: no start, no step size, deterministic.

    Args:
        share: of the solution that was given in each round, 0 .. 1; at least one round.
        accuracy: accuracy in each round, 0 .. 1.
    Returns:
        A curve with a slope in 1 .. 50 and a guessing chance in 0 .. 1.
    Raises:
        ValueError: there is no round.
    Source:
        SEELE, arXiv:2509.06923, equations 12 and 13; the penalty stands for the starting point of its solver.
    """
    if not share:
        raise ValueError("a curve needs at least one round")
    p = np.asarray(share, float)
    means = {at: np.mean([a for q, a in zip(share, accuracy, strict=True) if q == at]) for at in set(share)}
    a = np.asarray([means[at] for at in share], float)
    slopes = np.linspace(math.log(SLOPES[0]), math.log(SLOPES[1]), GRID[0])
    abilities = np.linspace(ABILITIES[0], ABILITIES[1], GRID[1])
    i = j = 0
    for finer in (False, True, True):
        if finer:  # the neighbours of the best on one grid are the ends of the next
            slopes = np.linspace(slopes[max(i - 1, 0)], slopes[min(i + 1, GRID[0] - 1)], GRID[0])
            abilities = np.linspace(abilities[max(j - 1, 0)], abilities[min(j + 1, GRID[1] - 1)], GRID[1])
        error = _error(p, a, slopes[:, None], abilities[None, :])
        i, j = (int(at) for at in np.unravel_index(int(error.argmin()), error.shape))
    guessing = _guessing(p, a, slopes[i], abilities[j])
    return Curve(float(np.exp(slopes[i])), float(abilities[j]), float(guessing))


def _logistic(p: Float[np.ndarray, " J"], log_slope: OnGrid, ability: OnGrid) -> Float[np.ndarray, "*grid J"]:
    return 1 / (1 + np.exp(-np.exp(log_slope)[..., None] * (p + ability[..., None])))


def _guessing(
    p: Float[np.ndarray, " J"],
    a: Float[np.ndarray, " J"],
    log_slope: OnGrid,
    ability: OnGrid,
) -> Float[Any, "*grid"]:
    """The best b at each k and m: the error is quadratic in it, f = s + b (1 - s)."""
    s = _logistic(p, log_slope, ability)
    return np.clip(((1 - s) * (a - s)).sum(-1) / (((1 - s) ** 2).sum(-1) + GUESSING_PRIOR), 0, 1)


def _error(
    p: Float[np.ndarray, " J"],
    a: Float[np.ndarray, " J"],
    log_slope: OnGrid,
    ability: OnGrid,
) -> Float[Any, "*grid"]:
    """Squared error at each k and m with its best b, and the penalty."""
    s = _logistic(p, log_slope, ability)
    b = _guessing(p, a, log_slope, ability)
    squares = ((s + b[..., None] * (1 - s) - a) ** 2).sum(-1)
    away = (log_slope - math.log(USUAL_SLOPE)) ** 2 + ((ability - USUAL_ABILITY) / 0.5) ** 2
    return squares + GUESSING_PRIOR * b**2 + PRIOR * away
