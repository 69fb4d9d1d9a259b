"""The key-value cache of the embedded engine: slots that branch, prompts that slots share, runs kept for later.

A *slot* holds the keys and values of one live prefix; several samples live in one slot until they draw different
tokens, then the slot is copied. A long prompt is stored once, beside the slots, and every slot of its group attends to
it there. Slots and prompts are kept dense (0 .. n-1), so that attention reads slices and never gathers the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


class Store:
    """Keys and values (layer, entry, head, place, dim) that grow as needed; entries 0 .. n-1 are in use.

    Args:
        shape: layers, key-value heads and width of a head.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        layers, heads, dim = shape
        self.key = torch.zeros(layers, 0, heads, 0, dim, dtype=dtype, device=device)
        self.value = torch.zeros_like(self.key)

    def reserve(self, entries: int, length: int) -> None:
        """Make room for ``entries`` of ``length`` tokens; what is there stays."""
        layers, have, heads, width, dim = self.key.shape
        if have >= entries and width >= length:
            return
        # Grow by half: the copy is then paid a constant number of times for each token.
        rows = have if have >= entries else max(entries, have * 3 // 2, 8)
        places = width if width >= length else -(-max(length, width * 3 // 2) // 32) * 32
        for name in ("key", "value"):
            old = getattr(self, name)
            new = old.new_zeros(layers, rows, heads, places, dim)
            new[:, :have, :, :width] = old
            setattr(self, name, new)

    def put(self, entry: int, key: Tensor, value: Tensor) -> None:
        """Fill an entry from its first place on; ``key`` and ``value`` are (layer, head, tokens, dim)."""
        self.reserve(entry + 1, key.shape[2])
        self.key[:, entry, :, : key.shape[2]] = key
        self.value[:, entry, :, : key.shape[2]] = value

    def copy(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Entries ``target`` become copies of ``source``, up to ``length`` tokens."""
        for old, new in zip(source, target, strict=True):
            for tensor in (self.key, self.value):
                tensor[:, new, :, :length].copy_(tensor[:, old, :, :length])


@dataclass
class SharedPart:
    """Which slots attend to which shared prompt: P prompts, at most n slots each."""

    slot: Int[Tensor, "P n"]  # slots of each prompt, padded with 0
    place: Int[Tensor, " A"]  # where each slot stands in the flattened (P, n)
    mask: Float[Tensor, "P 1 1 length"]  # 0 where the prompt has a token, -inf past its end


class DecodePlan:
    """Attention of one new token for each of A slots: to its slot's own tokens, and to the prompt it shares."""

    def __init__(self, slots: Store, length: np.ndarray, shared: Store, part: SharedPart | None) -> None:
        """``length``: tokens that each slot holds before this one."""
        device = slots.key.device
        self.slots, self.shared, self.part = slots, shared, part
        self.count = len(length)
        self.longest = int(length.max()) + 1
        self.uniform = bool((length == length[0]).all())
        self.at = torch.from_numpy(length).to(device)
        self.slot = torch.arange(self.count, device=device)
        visible = torch.arange(self.longest, device=device) <= self.at[:, None]
        self.distance = self.at[:, None] - torch.arange(self.longest, device=device)
        zeros = torch.zeros(visible.shape, device=device)
        self.mask = None if self.uniform else zeros.masked_fill_(~visible, float("-inf"))[:, None, None]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        heads, dim = query.shape[1:]
        kv_heads = key.shape[1]
        keys, values = self.slots.key[layer], self.slots.value[layer]
        if self.uniform:
            keys[: self.count, :, self.longest - 1] = key
            values[: self.count, :, self.longest - 1] = value
        else:
            keys[self.slot, :, self.at] = key
            values[self.slot, :, self.at] = value
        q = (query * scale).view(self.count, kv_heads, -1, dim)
        k, v = keys[: self.count, :, : self.longest], values[: self.count, :, : self.longest]
        mask = self.mask
        if window is not None:
            if self.part is not None:
                raise NotImplementedError("shared prompts with sliding-window attention")
            far = torch.zeros(self.distance.shape, device=q.device).masked_fill_(self.distance >= window, float("-inf"))
            mask = far[:, None, None] if mask is None else mask + far[:, None, None]
        if self.part is None:
            scores = torch.matmul(q, k.transpose(-1, -2))
            scores = scores if mask is None else scores + mask.to(scores.dtype)
            return torch.matmul(scores.softmax(-1), v).reshape(self.count, heads, dim)
        own = partial_attention(q, k, v, mask)
        prompts, width = self.part.slot.shape
        grouped = q[self.part.slot].transpose(1, 2).reshape(prompts, kv_heads, -1, dim)
        length = self.part.mask.shape[-1]
        above = partial_attention(
            grouped, self.shared.key[layer, :prompts, :, :length], self.shared.value[layer, :prompts, :, :length],
            self.part.mask,
        )  # fmt: skip

        def by_slot(x: Tensor) -> Tensor:
            spread = x.view(prompts, kv_heads, width, -1, x.shape[-1]).transpose(1, 2)
            return spread.flatten(0, 1)[self.part.place]  # pyright: ignore[reportOptionalMemberAccess]

        merged = merge_attention(own, (by_slot(above[0]), by_slot(above[1]), by_slot(above[2])))
        return merged.reshape(self.count, heads, dim)


Partial = tuple[Tensor, Tensor, Tensor]
"""Attention over some of the keys: (weighted values, not normalised; greatest score; sum of exp(score - greatest))."""


def partial_attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k d"],
    mask: Float[Tensor, "b 1 #q k"] | None,
) -> Partial:
    """One part of a softmax over more keys than are at hand. A part without any visible key has sum 0.

    Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", arXiv:1805.02867.
    """
    scores = torch.matmul(query, key.transpose(-1, -2))
    if mask is not None:
        scores = scores + mask.to(scores.dtype)
    # Not -inf where all is masked: exp(-inf - -inf) would be nan.
    greatest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    weight = torch.exp(scores - greatest)
    return torch.matmul(weight, value), greatest, weight.sum(-1, keepdim=True)


def merge_attention(a: Partial, b: Partial) -> Tensor:
    """Attention over the union of two sets of keys from the two parts."""
    greatest = torch.maximum(a[1], b[1])
    wa, wb = torch.exp(a[1] - greatest), torch.exp(b[1] - greatest)
    return (a[0] * wa + b[0] * wb) / (a[2] * wa + b[2] * wb)


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
