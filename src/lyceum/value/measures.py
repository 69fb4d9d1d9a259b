"""How well a model's scores agree with verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def auc(score: Sequence[float], right: Sequence[bool]) -> float | None:
    """Share of (right, wrong) pairs whose right one has the higher score, ties counted half: the area under the ROC
    curve; None where all are right or all are wrong, or a score is not finite."""
    if len(set(right)) < 2 or not all(map(math.isfinite, score)):
        return None
    from sklearn.metrics import roc_auc_score  # here: it takes a second to import

    return float(roc_auc_score(right, score))


@dataclass(frozen=True)
class Detected:
    """Wrong steps found among judged ones.

    Attributes:
        precision: share of the steps called wrong that are wrong; 0 where none is called so.
        recall: share of the wrong steps that are called so.
        f1: their harmonic mean; 0 where no wrong step is found.
        threshold: steps of a lower score are called wrong.
    """

    precision: float
    recall: float
    f1: float
    threshold: float


def detected(score: Sequence[float], right: Sequence[bool], threshold: float) -> Detected | None:
    """How well scores below a threshold find the wrong steps; None where no step is wrong.

    Args:
        score: of each step, higher for a better one.
        right: whether a rule that the scores were never fitted to calls it right.
    """
    called = [value < threshold for value in score]
    hits = sum(call and not good for call, good in zip(called, right, strict=True))
    wrong = len(right) - sum(right)
    if not wrong:
        return None
    precision, recall = hits / max(1, sum(called)), hits / wrong
    return Detected(precision, recall, 2 * hits / (sum(called) + wrong), threshold)


def best_threshold(score: Sequence[float], right: Sequence[bool]) -> float:
    """The threshold of the highest F1, the lowest of several: to be chosen on other steps than those it is used on."""
    found = [(one.f1, -t) for t in sorted({*score, float("inf")}) if (one := detected(score, right, t)) is not None]
    return -max(found)[1] if found else 0.0
