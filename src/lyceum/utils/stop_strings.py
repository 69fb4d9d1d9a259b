"""Stop strings, matched across token and draw boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile


def ends_in_new(before: str, text: str, stops: Sequence[str]) -> bool:
    """Whether one of ``stops`` ends in the part of ``text`` after ``before``, wherever it begins."""
    # Not len(before): a character whose bytes were incomplete is a different one now.
    same = (a == b for a, b in zip(before, text, strict=False))
    old = sum(takewhile(bool, same))
    return any(text.find(stop, max(0, old - len(stop) + 1)) >= 0 for stop in stops)
