"""95 % intervals: of a proportion, of a mean over tasks or seeds, of a difference.

Samples of one task are not independent: tasks (and seeds) are resampled, never single samples. Everything here is a
pure function of numbers; random draws come from a generator made from ``seed``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

RESAMPLES = 10_000
"""Bootstrap resamples. An interval over 5 tasks ends at the quantiles 0.001 and 0.999, which need this many."""
_CHUNK = 2_000_000  # indices drawn at once: bounds memory to about 32 MB whatever the number of tasks
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Interval:
    """A metric with its 95 % interval, in the metric's unit (a proportion in 0..1 unless said otherwise)."""

    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, float]) -> Interval:
        return cls(float(given["mean"]), float(given["low"]), float(given["high"]))


def wilson(mean: float, n: float) -> Interval:
    """Interval of a proportion observed in n independent trials.

        centre = (p + z^2/2n) / (1 + z^2/n);  half width = z / (1 + z^2/n) * sqrt(p(1-p)/n + z^2/4n^2);  z = 1.96

    A value in 0..1 with mean p has at most the variance of a Bernoulli variable with that mean, so that for graded
    values this interval is never too narrow for that reason.

    Raises:
        ValueError: n < 1, or the mean outside 0..1.
    Source:
        Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    if n < 1:
        raise ValueError(f"n: got {n} trials; allowed: 1 or more")
    if not 0 <= mean <= 1:
        raise ValueError(f"mean: got {mean}; allowed: a proportion in 0..1")
    shrink = 1 / (1 + _Z**2 / n)
    centre = shrink * (mean + _Z**2 / (2 * n))
    half = shrink * _Z * math.sqrt(mean * (1 - mean) / n + _Z**2 / (4 * n**2))
    # At 0 and at n the formula ends exactly on the mean, except for rounding.
    return Interval(mean, max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half)))


def share_interval(values: Sequence[float] | Float[np.ndarray, " task"]) -> Interval:
    """Mean over tasks of a proportion in 0..1: Wilson's interval with the effective number of tasks.

        n_eff = n / d,   d = (sum_i (x_i - p)^2 + v) / (n p (1 - p) + v),   v = 1/4

    d is the tasks' variance relative to Bernoulli variables of the same mean (the design effect). With one verdict per
    task it is 1, and this is Wilson's interval; with several samples per task it is less. v is the variance of one fair
    coin: it keeps d near 1 where little variation was observed, so that one incorrect sample does not make the interval
    narrower than none.

    Coverage, simulated with 8 samples per task and tasks' accuracies drawn from Beta distributions: 93 to 100 % for 10
    to 200 tasks; a bootstrap over tasks had 90 to 100 %, lowest where nearly all samples were correct or incorrect.

    Raises:
        ValueError: no task, or a value outside 0..1.
    Source:
        Wilson 1927, doi:10.1080/01621459.1927.10502953; effective sizes in it: Korn and Graubard 1998, "Confidence
        intervals for proportions with small expected number of positive counts estimated from survey data". v is ours.
    """
    value = np.asarray(values, dtype=float)
    n = len(value)
    if not n:
        raise ValueError("values: got no task; allowed: 1 or more")
    if not ((value >= 0) & (value <= 1)).all():
        raise ValueError(f"values: got {value.min()} to {value.max()}; allowed: proportions in 0..1")
    mean, one_coin = float(value.mean()), 0.25
    as_coins = n * mean * (1 - mean)
    design = (float(((value - mean) ** 2).sum()) + one_coin) / (as_coins + one_coin)
    return wilson(mean, n / design)


def mean_interval(values: Sequence[float] | Float[np.ndarray, " task"], *, seed: int = 0) -> Interval:
    """Mean over tasks with its expanded percentile bootstrap interval, tasks resampled.

        ends: quantiles Phi(-/+ t_{n-1, 0.975} * sqrt(n / (n - 1))) of the resampled means

    The plain percentile interval is too narrow for few tasks, by sqrt((n-1)/n) and by z instead of t; wider quantiles
    correct both and keep its skewness.

    Raises:
        ValueError: fewer than 2 tasks: nothing to resample.
    Source:
        Hesterberg 2015, arXiv:1411.5279 ("expanded percentile"); tasks as the units: Miller 2024,
        arXiv:2411.00640.
    """
    value = np.asarray(values, dtype=float)
    n = _at_least_two(len(value), "tasks")
    tail = NormalDist().cdf(-_t(n - 1) * math.sqrt(n / (n - 1)))
    low, high = np.quantile(_resampled_means(value, seed), (tail, 1 - tail))
    return Interval(float(value.mean()), float(low), float(high))


def mean_over_seeds(values: Sequence[float] | Float[np.ndarray, " seed"]) -> Interval:
    """Mean of one metric per seed with Student's interval; give it paired differences to compare two recipes.

        mean -/+ t_{S-1, 0.975} * sd / sqrt(S)          sd divides by S - 1

    Raises:
        ValueError: fewer than 2 seeds: their spread is unknown.
    Source:
        Student 1908, doi:10.1093/biomet/6.1.1; over seeds: Agarwal et al. 2021, arXiv:2108.13264.
    """
    value = np.asarray(values, dtype=float)
    n = _at_least_two(len(value), "seeds")
    mean = float(value.mean())
    half = _t(n - 1) * float(value.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half)


def difference_of_intervals(first: Interval, second: Interval) -> Interval:
    """``second - first`` of two independent metrics of which only the intervals are known: squared arms add up.

        low = d - sqrt((second - l_second)^2 + (u_first - first)^2), high likewise with the other arms

    Source:
        Newcombe 1998, doi:10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I, method 10.
    """
    mean = second.mean - first.mean
    down = math.hypot(second.mean - second.low, first.high - first.mean)
    up = math.hypot(second.high - second.mean, first.mean - first.low)
    return Interval(mean, mean - down, mean + up)


def difference_over_tasks(values: Sequence[float] | Float[np.ndarray, " task"], coin: float) -> Interval:
    """Mean over tasks of differences, paired by task: Student's interval, with one more difference observed.

        mean -/+ t_{n-1, 0.975} * sqrt((sum_i (d_i - mean)^2 + coin) / ((n - 1) n))

    Without it tasks that all differ alike (none does) would have an interval of no width.

    Args:
        coin: square of the smallest difference that one task can show by luck: 1 where each model is right or wrong,
            1 / m where each is a mean of m samples. One task alone: 1 on both sides.
    Source:
        Student 1908, doi:10.1093/biomet/6.1.1; pairs: Miller 2024, arXiv:2411.00640. The further one is ours.
    """
    value = np.asarray(values, dtype=float)
    n, mean = len(value), float(value.mean())
    if n < 2:
        return Interval(mean, mean - 1, mean + 1)
    half = _t(n - 1) * math.sqrt((float(((value - mean) ** 2).sum()) + coin) / ((n - 1) * n))
    return Interval(mean, mean - half, mean + half)


def _at_least_two(n: int, what: str) -> int:
    if n < 2:
        raise ValueError(f"got {n} {what}; allowed: 2 or more, a spread needs two")
    return n


def _resampled_means(value: Float[np.ndarray, " task"], seed: int) -> Float[np.ndarray, " resample"]:
    generator, n = np.random.default_rng(seed), len(value)
    rows = max(1, _CHUNK // n)
    sizes = [min(rows, RESAMPLES - start) for start in range(0, RESAMPLES, rows)]
    return np.concatenate([value[generator.integers(n, size=(size, n))].mean(axis=1) for size in sizes])


def _t(degrees: int) -> float:
    """Student's t at 97.5 %."""
    from scipy.special import stdtrit  # 0.1 s, too slow for checking a recipe

    return float(stdtrit(degrees, 0.975))
