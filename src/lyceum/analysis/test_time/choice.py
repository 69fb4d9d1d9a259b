"""Choosing one of a task's candidate answers by votes and values: no choice uses the verifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Choice = Literal["first", "best", "majority", "weighted-majority"]


@dataclass(frozen=True)
class Candidate:
    """A finished trajectory as a choice sees it.

    Attributes:
        answer: the answer that votes are counted by; None if the text has none.
        value: by a value model, 0 to 1; None if not evaluated.
    """

    answer: str | None
    value: float | None = None


def first(candidates: Sequence[Candidate]) -> int:
    """The one that was finished first."""
    return 0


def best(candidates: Sequence[Candidate]) -> int:
    """The one of the highest value, ties go to the first: argmax_i v_i.

    Source:
        Best-of-N against a verifier: Cobbe et al. 2021, arXiv:2110.14168, section 4.
    """
    values = [_value(candidate) for candidate in candidates]
    return values.index(max(values))


def majority(candidates: Sequence[Candidate]) -> int:
    """The first candidate with the most frequent answer; ties go to the answer found first.

        argmax_a #{i: a_i = a}

    Candidates without an answer do not vote; if none has one, the first is chosen.
    Source:
        Self-consistency: Wang et al. 2022, arXiv:2203.11171, section 2.
    """
    return _elected([candidate.answer for candidate in candidates], [1.0] * len(candidates), [0.0] * len(candidates))


def weighted_majority(candidates: Sequence[Candidate]) -> int:
    """The best of those that give the answer with the highest sum of values.

        argmax_a sum_{i: a_i = a} v_i

    Source:
        Li et al. 2022, arXiv:2206.02336, equation 2 (weighted voting of verified paths); best-of-N weighted: Snell et
        al. 2024, arXiv:2408.03314, section 5.1.
    """
    values = [_value(candidate) for candidate in candidates]
    return _elected([candidate.answer for candidate in candidates], values, values)


def _elected(answers: Sequence[str | None], votes: Sequence[float], value: Sequence[float]) -> int:
    tally: dict[str, float] = {}
    for answer, vote in zip(answers, votes, strict=True):
        if answer is not None:
            tally[answer] = tally.get(answer, 0.0) + vote
    if not tally:
        return max(range(len(answers)), key=lambda i: value[i])
    winner = max(tally, key=tally.__getitem__)
    return max((i for i, answer in enumerate(answers) if answer == winner), key=lambda i: value[i])


def _value(candidate: Candidate) -> float:
    if candidate.value is None:
        raise ValueError("a candidate without a value cannot be ranked by it")
    return candidate.value


CHOICES: Mapping[Choice, Callable[[Sequence[Candidate]], int]] = {
    "first": first,
    "best": best,
    "majority": majority,
    "weighted-majority": weighted_majority,
}
"""Each takes one or more candidates, in the order in which they were finished, and returns the chosen one's index."""

BY_VALUE: tuple[Choice, ...] = ("best", "weighted-majority")
"""Choices that need values."""
