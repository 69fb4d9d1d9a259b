"""Accuracy at equal tokens: between the sizes that were measured, and nowhere beyond them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lyceum.test_time.cells import Cell, share

BUDGETS = 4
"""Budgets where nobody names any."""


def at_equal_tokens(curves: dict[str, list[Cell]], budgets: Sequence[float]) -> list[dict[str, Any]]:
    """Each strategy's accuracy at each budget.

    A strategy of one size has that one's accuracy at every budget from its own tokens on: more tokens do not help it.

    Args:
        curves: strategy -> its sizes.
        budgets: tokens spent a task.
    Returns:
        ``{"tokens": budget, "accuracy": {strategy: {mean, low, high} or None}}``; None outside of what was measured.
    """
    return [
        {
            "tokens": budget,
            "accuracy": {strategy: accuracy_at(cells, budget) for strategy, cells in curves.items()},
        }
        for budget in budgets
    ]


def accuracy_at(cells: Sequence[Cell], budget: float) -> dict[str, float] | None:
    """Interpolated linearly in the logarithm of the tokens spent between the neighbouring sizes.

        a(B) = (1 - w) a(m) + w a(n),  w = ln(B / B_m) / ln(B_n / B_m),  B_m <= B <= B_n

    Both ends of the interval are interpolated likewise: the sizes share their tasks, so that their errors may add.

    Returns:
        Share with its 95 % interval; None where B is below the least or above the most that was measured, or where one
        of the sizes could not be graded.
    """
    ordered = sorted(cells, key=lambda cell: cell.tokens_spent)
    if not ordered or budget < ordered[0].tokens_spent:
        return None
    if len(ordered) == 1:
        below = above = ordered[0]
    elif budget > ordered[-1].tokens_spent:
        return None
    else:
        below = max((cell for cell in ordered if cell.tokens_spent <= budget), key=lambda cell: cell.tokens_spent)
        above = min((cell for cell in ordered if cell.tokens_spent >= budget), key=lambda cell: cell.tokens_spent)
    weight = 0.0
    if above.tokens_spent > below.tokens_spent:
        weight = math.log(budget / below.tokens_spent) / math.log(above.tokens_spent / below.tokens_spent)
    least, most = share(below.right), share(above.right)
    if least is None or most is None:
        return None
    return {key: (1 - weight) * least[key] + weight * most[key] for key in least}


def usual_budgets(curves: dict[str, list[Cell]], n: int = BUDGETS) -> list[float]:
    """Budgets at which every strategy of several sizes has been measured on both sides: evenly spaced logarithms.

    Where what is common to all is narrow (less than a doubling), from the least to the most that any of them spent.
    None without any such strategy.
    """
    spans = [sorted(cell.tokens_spent for cell in cells) for cells in curves.values() if len(cells) > 1]
    if not spans:
        return []
    low, high = max(span[0] for span in spans), min(span[-1] for span in spans)
    if high < 2 * low:
        low, high = min(span[0] for span in spans), max(span[-1] for span in spans)
    low = max(low, 1.0)
    # Inwards to whole tokens, so that the ends stay within what was measured.
    found = [low * (high / low) ** (i / (n - 1)) for i in range(n)]
    whole = [math.ceil(found[0]), *(round(budget) for budget in found[1:-1]), math.floor(found[-1])]
    return [float(budget) for budget in sorted(set(whole))]
