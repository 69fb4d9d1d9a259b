"""The states that steps are compared in: those that an environment marks, or the last steps."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from lyceum.core.forest import Forest
from lyceum.core.keys import Keyed, Span, StepKey, before, keyed, passes, prompts


def marked_states(forest: Forest, spans: Sequence[Sequence[Span]]) -> Keyed:
    """The steps of each row, by the key of the node that ends where they begin (``Node.key``), within the row's group.

    A prompt's end is a state, named by its tokens where nothing else names it. Any other step before which no node is
    marked is compared with no other.
    """
    marks = forest.node_key or {}
    at: dict[tuple[int, int], Hashable] = {}
    of = passes(forest)
    for row, end, node in zip(of.row.tolist(), of.end.tolist(), of.key, strict=True):
        if isinstance(node, int) and node in marks:
            at[row, end] = marks[node]
    for row, prompt in enumerate(prompts(forest)):
        at.setdefault((row, len(prompt)), prompt)
    group = forest.group.tolist()
    places = ((row, start) for row, own in enumerate(spans) for start, _ in own)
    return keyed(spans, [(group[place[0]], at[place]) if place in at else place for place in places])


def state(history: int | None) -> StepKey:
    """The state before a step, where no environment names one: how many steps were taken, and the last of them."""
    return lambda words, at: (at, before(words, at, history))
