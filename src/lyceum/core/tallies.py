"""Counts that are added to as trees grow: several processes count at the same time, and what they counted is added up.

A state has them as a mapping under the key ``TALLY``, at any depth. All else in a state may change between steps only,
or nobody could say which of several processes is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lyceum.core.types import State

TALLY = "tally"


class Tally(dict[str, float]):
    """Counts by name, which begin at 0."""

    def __init__(self, *names: str) -> None:
        super().__init__(dict.fromkeys(names, 0))

    def count(self, **more: float) -> None:
        for name, number in more.items():
            self[name] += number

    def taken(self) -> dict[str, float]:
        """The counts, which begin at 0 again."""
        found = dict(self)
        self.update(dict.fromkeys(self, 0))
        return found


def without_tallies(state: Any) -> Any:
    """A state as it is beside its counts."""
    if isinstance(state, Mapping):
        return {name: without_tallies(value) for name, value in state.items() if name != TALLY}
    return [without_tallies(value) for value in state] if isinstance(state, list | tuple) else state


def risen(before: State, after: State) -> dict[str, float]:
    """How much the counts of a state have risen, those that have: names on the way with ``/`` between -> number."""
    was = dict(_counts(before))
    rise = {path: number - was.get(path, 0) for path, number in _counts(after)}
    return {path: number for path, number in rise.items() if number}


def with_added(state: Mapping[str, Any], counted: Mapping[str, float], above: str = "") -> dict[str, Any]:
    """A state whose counts are higher by these."""
    found: dict[str, Any] = {}
    for name, value in state.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping):
            found[name] = with_added(value, counted, f"{path}/")
        else:
            found[name] = value + counted[path] if path in counted else value
    return found


def _counts(state: Mapping[str, Any], above: str = "", *, inside: bool = False) -> Iterator[tuple[str, float]]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from _counts(value, f"{above}{name}/", inside=inside or name == TALLY)
        elif inside:
            yield f"{above}{name}", value
