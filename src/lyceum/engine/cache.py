"""The key-value cache of the embedded engine: slots that branch, prompts that slots share, runs kept for later.

A *slot* holds the keys and values of one live prefix; several samples live in one slot until they draw different
tokens, then the slot is copied. A long prompt is stored once, beside the slots, and every slot of its group attends to
it there. Slots and prompts are kept dense (0 .. n-1), so that attention reads slices and never gathers the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


class Store:
    """Keys and values (layer, key or value, entry, head, place, dim) that grow as needed; entries 0 .. n-1 are in use.

    Args:
        shape: layers, key-value heads and width of a head.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        layers, heads, dim = shape
        self.kv = torch.zeros(layers, 2, 0, heads, 0, dim, dtype=dtype, device=device)

    def reserve(self, entries: int, length: int) -> None:
        """Make room for ``entries`` of ``length`` tokens; what is there stays."""
        layers, two, have, heads, width, dim = self.kv.shape
        if have >= entries and width >= length:
            return
        # Grow by half: the copy is then paid a constant number of times for each token.
        rows = have if have >= entries else max(entries, have * 3 // 2, 8)
        places = width if width >= length else -(-max(length, width * 3 // 2) // 32) * 32
        new = self.kv.new_zeros(layers, two, rows, heads, places, dim)
        new[:, :, :have, :, :width] = self.kv
        self.kv = new

    def put(self, entry: int, key: Tensor, value: Tensor) -> None:
        """Fill an entry from its first place on; ``key`` and ``value`` are (layer, head, tokens, dim)."""
        self.reserve(entry + 1, key.shape[2])
        self.kv[:, 0, entry, :, : key.shape[2]] = key
        self.kv[:, 1, entry, :, : key.shape[2]] = value

    def part(self, entry: int, tokens: slice) -> tuple[Tensor, Tensor]:
        """Keys and values (layer, head, tokens, dim) of some places of an entry."""
        return self.kv[:, 0, entry, :, tokens], self.kv[:, 1, entry, :, tokens]

    def copy(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Entries ``target`` become copies of ``source``, up to ``length`` tokens; no target is a source."""
        for old, new in zip(source, target, strict=True):
            self.kv[:, :, new, :, :length] = self.kv[:, :, old, :, :length]


@dataclass(eq=False)
class Kept:
    """Keys and values of a run of tokens below another kept run: a radix tree that follows the callers' trees."""

    tokens: tuple[int, ...]
    key: Float[Tensor, "layer head n dim"]
    value: Float[Tensor, "layer head n dim"]
    above: Kept | None
    below: dict[tuple[int, ...], Kept]


class Keeper:
    """Cache of runs that callers said they will continue. Dropped whole when the weights change.

    Args:
        capacity: most tokens kept; beyond it the oldest runs without a run below them go first.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        self.top: dict[tuple[int, ...], Kept] = {}
        self.runs: dict[int, Kept] = {}  # oldest first
        self.tokens = 0

    def longest(self, tokens: Sequence[int]) -> tuple[list[Kept], int]:
        """The kept runs that ``tokens`` begins with, from the top, and how many tokens they hold."""
        found: list[Kept] = []
        at, below = 0, self.top
        while True:
            fits = [run for run in below.values() if tuple(tokens[at : at + len(run.tokens)]) == run.tokens]
            if not fits:
                return found, at
            run = max(fits, key=lambda r: len(r.tokens))
            found.append(run)
            at, below = at + len(run.tokens), run.below

    def keep(self, above: Kept | None, tokens: tuple[int, ...], key: Tensor, value: Tensor) -> Kept | None:
        """Keep one run below another; returns it, or ``above`` where there is nothing to keep."""
        if above is not None and id(above) not in self.runs:
            return None  # evicted meanwhile: a run below it could never be found
        siblings = self.top if above is None else above.below
        if not tokens or tokens in siblings:
            return siblings.get(tokens, above)
        run = siblings[tokens] = Kept(tokens, key.clone(), value.clone(), above, {})
        self.runs[id(run)] = run
        self.tokens += len(tokens)
        if self.tokens > self.capacity:
            self._evict(run)
        return run

    def _evict(self, spare: Kept) -> None:
        for name, run in list(self.runs.items()):
            if self.tokens <= self.capacity:
                return
            if not run.below and run is not spare:
                del (self.top if run.above is None else run.above.below)[run.tokens]
                del self.runs[name]
                self.tokens -= len(run.tokens)
