"""The KV cache of the embedded engine: slots that branch, prompts that slots share, tokens kept for later.

A *slot* holds the keys and values of one live prefix; several samples live in one slot until they draw different
tokens, then the slot is copied. A long prompt is stored once, beside the slots, and every slot of its group attends to
it there. Slots and prompts are kept dense (0 .. n-1), so that attention reads slices and never gathers the cache.

What callers will continue from is kept in a *pool*, one place per token, and found by a radix tree over the tokens: a
node of it is a list of places, so that it can be split anywhere without a copy, and moves between pool and slots are
one gather and one scatter, for any number and lengths of prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from lyceum.core.types import Choices
from lyceum.utils.lazy_imports import Tensor, torch

Ints = NDArray[np.int64]


class Store:
    """Keys and values (layer, key or value, entry, head, place, dim) that grow as needed; entries 0 .. n-1 are in use.

    Args:
        shape: layers, key-value heads and width of a head.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        layers, heads, dim = shape
        self.kv = torch.zeros(layers, 2, 0, heads, 0, dim, dtype=dtype, device=device)

    def reserve(self, entries: int, length: int) -> None:
        """Allocate ``entries`` of ``length`` tokens; existing content is kept."""
        layers, two, have, heads, width, dim = self.kv.shape
        if have >= entries and width >= length:
            return
        # Grow by half: the amortised cost of copying is then constant per token.
        rows = have if have >= entries else max(entries, have * 3 // 2, 8)
        places = width if width >= length else -(-max(length, width * 3 // 2) // 32) * 32
        new = self.kv.new_zeros(layers, two, rows, heads, places, dim)
        new[:, :, :have, :, :width] = self.kv
        self.kv = new

    def put(self, entry: int, kv: Float[Tensor, "layer 2 n head dim"]) -> None:
        """Fill an entry from its first place on."""
        self.reserve(entry + 1, kv.shape[2])
        self.kv[:, :, entry, :, : kv.shape[2]] = kv.transpose(2, 3)

    def read(self, entry: Ints, place: Ints) -> Float[Tensor, "layer 2 n head dim"]:
        """Single tokens: (n,) entries and places in them."""
        layers, _, _, heads, _, dim = self.kv.shape
        return self._flat().index_select(2, self._rows(entry, place)).view(layers, 2, -1, heads, dim)

    def write(self, entry: Ints, place: Ints, kv: Float[Tensor, "layer 2 n head dim"]) -> None:
        """Single tokens, within the allocated size; no two at the same place."""
        if len(entry):
            self._flat().index_copy_(2, self._rows(entry, place), kv.flatten(2, 3))

    def _flat(self) -> Tensor:
        layers, _, _, _, _, dim = self.kv.shape
        return self.kv.view(layers, 2, -1, dim)

    def _rows(self, entry: Ints, place: Ints) -> Tensor:
        heads, places = self.kv.shape[3:5]
        first = entry * (heads * places) + place
        rows = (first[:, None] + np.arange(heads) * places).reshape(-1)
        return torch.from_numpy(rows).to(self.kv.device)

    def copy(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Entries ``target`` become copies of ``source``, up to ``length`` tokens; no target is a source."""
        for old, new in zip(source, target, strict=True):
            self.kv[:, :, new, :, :length] = self.kv[:, :, old, :, :length]


class TokenPool:
    """Keys and values of single tokens (layer, key or value, place, head, dim), each at any free place.

    Args:
        choices: how many experts each token goes to, which are kept beside them.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device, choices: int = 0) -> None:
        layers, heads, dim = shape
        self.experts: Choices = np.zeros((0, choices), np.int16)
        self.kv = torch.zeros(layers, 2, 0, heads, dim, dtype=dtype, device=device)
        self._free = np.zeros(0, np.int64)
        """Free places: the first ``_left`` of this array."""
        self._left = 0

    def __len__(self) -> int:
        """Tokens that it holds."""
        return self.kv.shape[2] - self._left

    def take(self, n: int) -> Ints:
        """Allocate places for n tokens."""
        if n > self._left:
            self._grow(n)
        self._left -= n
        return self._free[self._left : self._left + n][::-1].copy()

    def release(self, places: Ints) -> None:
        self._free[self._left : self._left + len(places)] = places
        self._left += len(places)

    def clear(self) -> None:
        self._left = self.kv.shape[2]
        self._free = np.arange(self._left)[::-1].copy()

    def _grow(self, n: int) -> None:
        layers, two, have, heads, dim = self.kv.shape
        size = max(len(self) + n, have * 3 // 2, 256)
        new = self.kv.new_empty(layers, two, size, heads, dim)
        new[:, :, :have] = self.kv
        self.kv = new
        self.experts = np.concatenate([self.experts, np.zeros((size - have, self.experts.shape[1]), np.int16)])
        free = np.empty(size, np.int64)
        added = size - have
        # Low places are taken first, in order: runs are then contiguous.
        free[: self._left + added] = np.concatenate([np.arange(size - 1, have - 1, -1), self._free[: self._left]])
        self._free, self._left = free, self._left + added

    def read(self, places: Ints) -> Float[Tensor, "layer 2 n head dim"]:
        return self.kv.index_select(2, torch.from_numpy(places).to(self.kv.device))

    def write(self, places: Ints, kv: Float[Tensor, "layer 2 n head dim"]) -> None:
        if len(places):
            self.kv.index_copy_(2, torch.from_numpy(places).to(self.kv.device), kv)


@dataclass(eq=False)
class KeptTokens:
    """A run of kept tokens below another one. Runs below the same one begin with different tokens."""

    tokens: tuple[int, ...]
    place: Ints
    """Each token's place in the pool."""
    above: KeptTokens | None
    below: dict[int, KeptTokens] = field(default_factory=dict)
    """Runs below, by their first token."""
    used: int = 0
    """When it was last looked up or made, as a count of such events."""


class Keeper:
    """Radix tree of what callers said they will continue, each token once. Dropped whole when the weights change.

    Args:
        capacity: maximum tokens kept; beyond it the least recently used leaves are evicted until an eighth is free.
    """

    def __init__(self, capacity: int, pool: TokenPool) -> None:
        self.capacity, self.pool = capacity, pool
        self.clear()

    def clear(self) -> None:
        self.root = KeptTokens((), np.zeros(0, np.int64), None)
        self.tokens = self._now = 0
        self.pool.clear()

    def longest(self, tokens: Sequence[int]) -> Ints:
        """Places of the longest prefix of ``tokens`` that is kept."""
        runs, length, inside = self._descend(tokens)
        if not length:
            return self.root.place
        parts = [run.place for run in runs[:-1]] + [runs[-1].place[:inside]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def add(self, tokens: Sequence[int], *, least: int = 0) -> tuple[int, Ints]:
        """Keep ``tokens``: returns how many were kept already, and places of the others, which the caller fills.

        Nothing is added, and no places returned, where fewer than ``least`` were kept.
        """
        runs, length, inside = self._descend(tokens)
        if length == len(tokens) or length < least:
            return length, self.root.place
        above = runs[-1] if runs else self.root
        if inside < len(above.tokens):
            above = self._split(above, inside)
        places = self.pool.take(len(tokens) - length)
        run = KeptTokens(tuple(tokens[length:]), places, above, used=self._now)
        above.below[run.tokens[0]] = run
        self.tokens += len(places)
        return length, places

    def _descend(self, tokens: Sequence[int]) -> tuple[list[KeptTokens], int, int]:
        """Runs that match a prefix of ``tokens``, from the top; matched tokens in all, and of the last run."""
        self._now += 1
        runs: list[KeptTokens] = []
        tokens = tuple(tokens)
        at, end, inside, run = 0, len(tokens), 0, self.root
        while at < end and (below := run.below.get(tokens[at])) is not None:
            run = below
            run.used = self._now
            runs.append(run)
            inside = len(run.tokens)
            part = tokens[at : at + inside]
            if part != run.tokens:
                inside = common(part, run.tokens)
                return runs, at + inside, inside
            at += inside
        return runs, at, inside

    def _split(self, run: KeptTokens, at: int) -> KeptTokens:
        """Split a run in two; returns the upper part."""
        assert run.above is not None
        head = KeptTokens(run.tokens[:at], run.place[:at], run.above, {run.tokens[at]: run}, run.used)
        run.above.below[head.tokens[0]] = head
        run.tokens, run.place, run.above = run.tokens[at:], run.place[at:], head
        return head

    def trim(self) -> None:
        """Evict tokens beyond the capacity. Not while allocated places are still to be filled."""
        if self.tokens <= self.capacity:
            return
        # A run is used whenever one below it is: sorted by last use, runs come before those above them; runs of the
        # same event are sorted deepest first.
        runs = [(run.used, -depth, n, run) for n, (depth, run) in enumerate(self.runs())]
        for _, _, _, run in sorted(runs):
            if self.tokens <= self.capacity * 7 // 8:
                return
            assert run.above is not None
            assert not run.below
            del run.above.below[run.tokens[0]]
            self.pool.release(run.place)
            self.tokens -= len(run.tokens)

    def runs(self) -> Iterator[tuple[int, KeptTokens]]:
        """Every run with its depth."""
        stack = [(1, run) for run in self.root.below.values()]
        while stack:
            depth, run = stack.pop()
            yield depth, run
            stack += [(depth + 1, below) for below in run.below.values()]


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two runs."""
    low, high = 0, min(len(a), len(b))
    if tuple(a[:high]) == tuple(b[:high]):
        return high
    # Bisection: comparing slices is a hundred times faster than comparing tokens one by one.
    while high - low > 1:
        middle = (low + high) // 2
        if tuple(a[low:middle]) == tuple(b[low:middle]):
            low = middle
        else:
            high = middle
    return low
