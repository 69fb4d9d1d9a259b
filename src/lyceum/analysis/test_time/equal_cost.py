"""Accuracy at equal tokens: interpolated between the measured sizes, never extrapolated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lyceum.analysis.test_time.strategy_result import StrategyResult, share

BUDGETS = 4
"""Default number of budgets."""


def at_equal_tokens(curves: dict[str, list[StrategyResult]], budgets: Sequence[float]) -> list[dict[str, Any]]:
    """Each strategy's accuracy at each budget.

    A strategy of one size has the same accuracy at every budget from its own tokens on.

    Args:
        curves: strategy -> its sizes.
        budgets: tokens spent per task.
    Returns:
        ``{"tokens": budget, "accuracy": {strategy: {mean, low, high} or None}}``; None outside the measured range.
    """
    return [
        {
            "tokens": budget,
            "accuracy": {strategy: accuracy_at(results, budget) for strategy, results in curves.items()},
        }
        for budget in budgets
    ]


def accuracy_at(results: Sequence[StrategyResult], budget: float) -> dict[str, float] | None:
    """Accuracy interpolated linearly in the logarithm of the tokens spent between the neighbouring sizes.

        a(B) = (1 - w) a(m) + w a(n),  w = ln(B / B_m) / ln(B_n / B_m),  B_m <= B <= B_n

    Both ends of the interval are interpolated likewise: the sizes share their tasks, so their errors may add.

    Returns:
        Accuracy with its 95 % interval; None if B is outside the measured range, or if one of the sizes could not be
        graded.
    """
    ordered = sorted(results, key=lambda result: result.tokens_spent)
    if not ordered or budget < ordered[0].tokens_spent:
        return None
    if len(ordered) == 1:
        below = above = ordered[0]
    elif budget > ordered[-1].tokens_spent:
        return None
    else:
        below = [each for each in ordered if each.tokens_spent <= budget][-1]
        above = next(each for each in ordered if each.tokens_spent >= budget)
    weight = 0.0
    if above.tokens_spent > below.tokens_spent:
        weight = math.log(budget / below.tokens_spent) / math.log(above.tokens_spent / below.tokens_spent)
    least, most = share(below.right), share(above.right)
    if least is None or most is None:
        return None
    return {key: (1 - weight) * least[key] + weight * most[key] for key in least}


def usual_budgets(curves: dict[str, list[StrategyResult]], n: int = BUDGETS) -> list[float]:
    """Log-spaced budgets within the range that every strategy of several sizes has measured.

    If the common range is narrow (less than a doubling), the range from the least to the most that any of them spent.
    Empty without any such strategy.
    """
    spans = [sorted(result.tokens_spent for result in results) for results in curves.values() if len(results) > 1]
    if not spans:
        return []
    low, high = max(span[0] for span in spans), min(span[-1] for span in spans)
    if high < 2 * low:
        low, high = min(span[0] for span in spans), max(span[-1] for span in spans)
    low = max(low, 1.0)
    # Rounded inwards to whole tokens, so that the ends stay within the measured range.
    found = [low * (high / low) ** (i / (n - 1)) for i in range(n)]
    whole = [math.ceil(found[0]), *(round(budget) for budget in found[1:-1]), math.floor(found[-1])]
    # A range may hold no whole number of tokens.
    return [float(budget) for budget in sorted(set(whole)) if low <= budget <= high]
