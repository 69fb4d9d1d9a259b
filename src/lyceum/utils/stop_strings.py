"""Stop strings, matched across token and draw boundaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile


def ends_in_new(before: str, text: str, stops: Sequence[str]) -> bool:
    """Whether one of ``stops`` ends in the part of ``text`` after ``before``, wherever it begins."""
    # Not len(before): a character whose bytes were incomplete is a different one now.
    same = (a == b for a, b in zip(before, text, strict=False))
    old = sum(takewhile(bool, same))
    return any(text.find(stop, max(0, old - len(stop) + 1)) >= 0 for stop in stops)


def ends_in_drawn(
    prefix: Sequence[int],
    written: int,
    drawn: Sequence[int],
    stops: Sequence[str],
    decode: Callable[[Sequence[int]], str],
) -> bool:
    """Whether one of ``stops`` ends in the token drawn last.

    Args:
        prefix: tokens before those drawn, of which the last ``written`` belong to the completion: it may begin there.
    """
    # A stop string may end inside a token and begin as many tokens earlier as it has bytes.
    reach = max(len(stop.encode()) for stop in stops) + 3
    before = list(drawn[:-1][-reach:])
    if more := min(written, reach - len(before)):
        before = [*prefix[-more:], *before]
    return ends_in_new(decode(before), decode([*before, drawn[-1]]), stops)
