"""Metrics of an evaluation: pass@k, avg@k, maj@k, in one summary with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lyceum.core.component import MOST_SAMPLES
from lyceum.evaluation.intervals import mean_interval, share_interval
from lyceum.utils.numbers import level_order


@dataclass(frozen=True)
class TaskResult:
    """Results of one task's samples; the lists have one entry per sample.

    Attributes:
        task_id: unique among the results.
        level: difficulty, or None where the source has none.
        correct: None where a sample could not be graded, or its reward says neither correct nor incorrect.
        answers: the extracted answer by which votes are counted; None where there was none to extract.
        tokens: length of each completion, in tokens.
        rewards: outcome reward of each sample; None where it could not be graded.
    """

    task_id: str
    level: str | int | None
    correct: Sequence[bool | None]
    answers: Sequence[str | None]
    tokens: Sequence[int] = ()
    rewards: Sequence[float | None] = ()

    def __post_init__(self) -> None:
        if len(self.answers) != len(self.correct):
            got = f"{len(self.answers)} answers for {len(self.correct)} samples"
            raise ValueError(f"task {self.task_id!r}: got {got}; allowed: one answer per sample")

    @property
    def verdicts(self) -> list[bool]:
        """Verdicts of the graded samples."""
        return [bool(verdict) for verdict in self.correct if verdict is not None]

    @property
    def ungraded(self) -> int:
        return sum(given is None for given in (self.rewards or self.correct))

    @property
    def unjudged(self) -> int:
        """Number of samples with a reward but without a verdict."""
        return len(self.correct) - len(self.verdicts) - self.ungraded

    @property
    def reward(self) -> float | None:
        """Mean reward over the graded samples."""
        given = [reward for reward in self.rewards if reward is not None]
        return float(np.mean(given)) if given else None

    @property
    def votes(self) -> list[tuple[str | None, bool]]:
        """(answer, correct) of the graded samples."""
        return [(a, bool(c)) for a, c in zip(self.answers, self.correct, strict=True) if c is not None]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k samples is correct, drawn without replacement from n of which c are correct.

        pass@k = 1 - C(n-c, k) / C(n, k) = 1 - prod_{i=n-c+1}^{n} (1 - k / i)

    The product has no large numbers, so that it is exact to rounding for every n. Unbiased for the probability that at
    least one of k fresh samples is correct; 1 - (1 - c/n)^k is not.

    Args:
        n: graded samples of the task.
        c: correct ones among them.
        k: samples that a user would draw, 1 .. n.
    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    Source:
        Chen et al. 2021, arXiv:2107.03374, equation 1.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c: got {c} correct samples of n = {n}; allowed: 0 to n")
    _check_k(n, k)
    if n - c < k:
        return 1.0
    return 1.0 - float(np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


def avg_at_k(correct: Sequence[bool]) -> float:
    """Accuracy of a task's samples: sum(correct) / k, the estimate of one sample's probability of being correct.

    Raises:
        ValueError: no sample.
    Source:
        DeepSeek-R1, arXiv:2501.12948 (there called pass@1, over k samples).
    """
    if not len(correct):
        raise ValueError("correct: got no sample; allowed: 1 or more")
    return float(np.mean(np.asarray(correct, dtype=float)))


def maj_at_k(votes: Sequence[tuple[str | None, bool]], k: int) -> float:
    """Probability that a majority vote among k of a task's n samples is correct, exactly, over all C(n, k) subsets.

    The most frequent answer of the subset wins; ties share the vote, each winner being taken with equal probability:

        maj@k = 1 / C(n, k) * sum_{subsets} mean_{winners a} correct(a)

    Samples without an answer do not vote; a subset without any answer is incorrect. ``correct(a)`` is the accuracy of
    a's samples (a verifier may see more than the extracted answer).

    The sum runs over the winning count m. For each, a generating function over the answers counts the subsets in
    which none has more than m votes, by size and by number of winners: all terms are positive, nothing cancels.

    Args:
        votes: (answer, correct) of each graded sample.
        k: votes cast, 1 .. n.
    Raises:
        ValueError: not 1 <= k <= n, or n > 1000.
    Source:
        Majority vote: Wang et al. 2022, arXiv:2203.11171, section 2; the mean over subsets is worked out here.
    """
    n = len(votes)
    _check_k(n, k)
    if n > MOST_SAMPLES:
        raise ValueError(f"votes: got {n} samples; allowed: {MOST_SAMPLES} or fewer")
    by_answer: dict[str, list[bool]] = {}
    for answer, correct in votes:
        if answer is not None:
            by_answer.setdefault(answer, []).append(correct)
    silent = n - sum(map(len, by_answer.values()))
    tallies = [(len(verdicts), float(np.mean(verdicts))) for verdicts in by_answer.values()]
    largest = min(k, max((count for count, _ in tallies), default=0))
    if largest == 0 or not any(correct for _, correct in tallies):
        return 0.0
    return min(1.0, sum(_right_with(m, tallies, silent, k) for m in range(1, largest + 1)) / math.comb(n, k))


def _right_with(m: int, tallies: Sequence[tuple[int, float]], silent: int, k: int) -> float:
    """Sum, over the k-subsets whose winners have exactly m votes, of the winners' mean correctness."""
    most_winners = k // m
    ways = np.zeros((k + 1, most_winners + 1))  # subsets so far, by (size, winners)
    right = np.zeros_like(ways)  # of those, the sum over winners of their correctness
    for size in range(min(silent, k) + 1):
        ways[size, 0] = math.comb(silent, size)
    for count, correct in tallies:
        new_ways, new_right = np.zeros_like(ways), np.zeros_like(right)
        for take in range(min(count, m - 1) + 1):
            choices = float(math.comb(count, take))
            new_ways[take:] += choices * ways[: k + 1 - take]
            new_right[take:] += choices * right[: k + 1 - take]
        if count >= m:
            choices = float(math.comb(count, m))
            before, before_right = ways[: k + 1 - m, :most_winners], right[: k + 1 - m, :most_winners]
            new_ways[m:, 1:] += choices * before
            new_right[m:, 1:] += choices * (before_right + correct * before)
        ways, right = new_ways, new_right
    return float((right[k, 1:] / np.arange(1, most_winners + 1)).sum())


def summarise(
    results: Sequence[TaskResult],
    ks: Sequence[int] = (1,),
    *,
    greedy: Sequence[TaskResult] | None = None,
) -> dict[str, Any]:
    """The metrics of one evaluation, as in summary.json.

    Ungraded samples are counted and left out. A task with fewer than k graded samples is left out of every metric
    at k, and ``left_out_at`` counts it; a k that no task reaches has no metric.

    Args:
        results: sampled results, one per task.
        ks: samples that pass@k and maj@k allow.
        greedy: the same tasks answered once at temperature 0.
    Returns:
        ``overall`` (mean over tasks of the accuracy; None where nothing was graded),
        ``by_level``, ``pass_at``, ``maj_at``, ``avg_at`` (at the number of samples), ``left_out_at``, ``greedy``,
        ``reward`` (mean over tasks; None of fewer than two), ``tasks``, ``samples``, ``ungraded``, ``unjudged``,
        ``tokens_mean``; every metric as ``{"mean", "low", "high"}``.
    """
    graded = [result for result in results if result.verdicts]
    samples = max((len(result.correct) for result in results), default=0)
    lengths = [length for result in results for length in result.tokens]
    overall = _overall(graded)
    reached = {k: [result for result in graded if len(result.verdicts) >= k] for k in sorted(set(ks))}

    def at_each(metric: Callable[[TaskResult, int], float]) -> dict[str, dict[str, float]]:
        return {
            str(k): share_interval([metric(task, k) for task in tasks]).to_json()
            for k, tasks in reached.items()
            if tasks
        }

    return {
        "overall": overall,
        "by_level": _by_level(graded),
        "greedy": _greedy(greedy) if greedy is not None else None,
        "pass_at": at_each(lambda task, k: pass_at_k(len(task.verdicts), sum(task.verdicts), k)),
        "maj_at": at_each(lambda task, k: maj_at_k(task.votes, k)),
        "avg_at": {str(samples): overall} if overall else {},
        "left_out_at": {str(k): len(results) - len(tasks) for k, tasks in reached.items()},
        "tasks": len(graded),
        "samples": samples,
        "reward": _reward(results),
        "ungraded": sum(result.ungraded for result in results),
        "unjudged": sum(result.unjudged for result in results),
        "tokens_mean": float(np.mean(lengths)) if lengths else None,
    }


def _greedy(results: Sequence[TaskResult]) -> dict[str, Any]:
    graded = [result for result in results if result.verdicts]
    ungraded = sum(result.ungraded for result in results)
    return {"overall": _overall(graded), "by_level": _by_level(graded), "ungraded": ungraded}


def _reward(results: Sequence[TaskResult]) -> dict[str, float] | None:
    rewards = [reward for result in results if (reward := result.reward) is not None]
    return mean_interval(rewards).to_json() if len(rewards) > 1 else None


def _overall(graded: Sequence[TaskResult]) -> dict[str, float] | None:
    return share_interval([avg_at_k(result.verdicts) for result in graded]).to_json() if graded else None


def _by_level(graded: Sequence[TaskResult]) -> dict[str, dict[str, float]]:
    levels: dict[str, list[float]] = {}
    for result in graded:
        if result.level is not None:
            levels.setdefault(str(result.level), []).append(avg_at_k(result.verdicts))
    return {level: share_interval(levels[level]).to_json() for level in sorted(levels, key=level_order)}


def _check_k(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k: got {k} with {n} graded samples; allowed: 1 to {n}")
