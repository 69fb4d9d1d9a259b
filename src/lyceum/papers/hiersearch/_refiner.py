"""What an agent found, refined: evidence that bears on its steps or its conclusion is handed on, none of its claims.

Source: HierSearch, arXiv:2508.08088; plageon/HierSearch, agentic_rag/serve_search_agent.py, where texts are compared by
embeddings and a share of 0.3 is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple


class Found(NamedTuple):
    """One search of an agent: what it wrote before it, and the passages that it got."""

    hypothesis: str
    passages: tuple[str, ...]


def relevance(passage: str, text: str) -> float:
    """How much a passage bears on a text, 0 to 1: the cosine between their counts of characters and pairs of them."""
    one, other = _counts(passage), _counts(text)
    product = sum(times * other[part] for part, times in one.items())
    return product / sqrt(_square(one) * _square(other)) if product else 0.0


def most_relevant(passages: Sequence[str], text: str, share: float) -> list[str]:
    """The share of passages that bear most on a text, at least one of them, in their order; ties go to the first.

    Without a text these are the first ones.
    """
    if not passages:
        return []
    number = max(1, int(len(passages) * share))
    ranked = sorted(range(len(passages)), key=lambda place: -relevance(passages[place], text))
    return [passages[place] for place in sorted(ranked[:number])]


def refined(searches: Sequence[Found], conclusion: str, share: float) -> list[str]:
    """The evidence of a trajectory, each passage once.

    Of each search the share that bears most on what was written before it; then, of all that is left, the share that
    bears most on the conclusion.

    Args:
        share: 0 to 1; at least one passage is kept each time.
    """
    kept = [one for search in searches for one in most_relevant(search.passages, search.hypothesis, share)]
    left = [one for search in searches for one in search.passages if one not in kept]
    return list(dict.fromkeys([*kept, *most_relevant(list(dict.fromkeys(left)), conclusion, share)]))


def _counts(text: str) -> Counter[str]:
    return Counter([*text, *(text[i : i + 2] for i in range(len(text) - 1))])


def _square(counts: Counter[str]) -> int:
    return sum(times * times for times in counts.values())
