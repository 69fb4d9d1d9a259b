"""Prefill of waiting requests in one forward: common prefixes are computed once, cached ones not at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Unpack

import numpy as np
from jaxtyping import Float

from lyceum.core.types import Choices
from lyceum.engine._cache import Ints, Keeper, Store, common
from lyceum.models.model_cache import ModelCache
from lyceum.models.tree_attention import Scoring, TreePlan
from lyceum.utils.lazy_imports import Tensor, torch


class PrefillPlan(TreePlan):
    """Attention of new prompt tokens to their own prefix, whose beginning may be cached from earlier.

    Common prefixes (a system prompt, few-shot examples) are computed once: sorted, each request shares its common
    prefix with the one before it.
    """

    def __init__(self, prefixes: Sequence[Sequence[int]], keeper: Keeper) -> None:
        self.prefixes, self._keeper = prefixes, keeper
        self.tokens: list[int] = []
        self.position: list[int] = []
        self.runs: list[tuple[int, int]] = []
        """Which prefix the tokens are of, run by run, and the place in it where each run begins."""
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self.experts: Choices = np.zeros((0, keeper.pool.experts.shape[1]), np.int16)
        """Where the new tokens went, once they are computed, if anybody looks."""
        self.kept = [keeper.longest(prefix) for prefix in prefixes]
        """Places in the pool of the cached beginning of each prefix."""
        self.new = [np.zeros(0, np.int64) for _ in prefixes]
        """Indices of the tokens in ``tokens`` that follow it."""
        computed = [j for j, prefix in enumerate(prefixes) if len(self.kept[j]) < len(prefix)]
        computed.sort(key=lambda j: tuple(prefixes[j]))
        before: Sequence[int] = ()
        path = np.zeros(0, np.int64)
        owned_from: list[int] = []
        for j in computed:
            prefix, at = prefixes[j], len(self.kept[j])
            # What two prefixes share beyond the cached part of one is not cached for the other either.
            path = path[: max(0, common(prefix, before) - at)]
            first = at + len(path)
            path = np.concatenate([path, len(self.tokens) + np.arange(len(prefix) - first)])
            self.tokens += prefix[first:]
            self.position += range(first, len(prefix))
            self.runs.append((j, first))
            self.new[j], before = path, prefix
            owned_from.append(first)
        if self.tokens:
            # Cached tokens are numbered after the new ones.
            read = np.unique(np.concatenate([self.kept[j] for j in computed]))
            self._read = torch.from_numpy(read).to(keeper.pool.kv.device)
            kept = (len(self.tokens) + np.searchsorted(read, self.kept[j]) for j in computed)
            paths = [np.concatenate([above, self.new[j]]) for above, j in zip(kept, computed, strict=True)]
            super().__init__([torch.from_numpy(path) for path in paths], owned_from)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        key, value = self._with_kept(layer, key, value)
        return super().attend(layer, query, key, value, **how)

    def _with_kept(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens, which are remembered, and of the cached ones."""
        self._keys[layer], self._values[layer] = key, value
        if len(self._read):
            kept = self._keeper.pool.kv[layer].index_select(1, self._read)
            key, value = torch.cat([key, kept[0]]), torch.cat([value, kept[1]])
        return key, value

    @cached_property
    def _computed(self) -> Float[Tensor, "layer 2 n head dim"]:
        """Keys and values of the new tokens."""
        if not self._keys:  # nor has a model without attention any
            kv = self._keeper.pool.kv
            return kv.new_zeros(*kv.shape[:2], len(self.tokens), *kv.shape[3:])
        return torch.stack([torch.stack((self._keys[layer], self._values[layer])) for layer in sorted(self._keys)])

    def _of_new(self, index: Ints) -> Float[Tensor, "layer 2 n head dim"]:
        return self._computed.index_select(2, torch.from_numpy(index).to(self._computed.device))

    def whole(self, j: int) -> Float[Tensor, "layer 2 n head dim"]:
        """Keys and values of prefix j."""
        return torch.cat([self._keeper.pool.read(self.kept[j]), self._of_new(self.new[j])], 2)

    def went(self, j: int) -> Choices:
        """Where the tokens of prefix j went."""
        return np.concatenate([self._keeper.pool.experts[self.kept[j]], self.experts[self.new[j]]])

    def fill(self, store: Store, into: Sequence[tuple[int, int]]) -> None:
        """Write prefixes to allocated entries of a store: (entry, prefix)."""
        if not into:
            return
        entries = np.array([entry for entry, _ in into])
        kept, new = [self.kept[j] for _, j in into], [self.new[j] for _, j in into]
        at, count = np.array([len(places) for places in kept]), np.array([len(index) for index in new])
        store.write(np.repeat(entries, at), ranges(at), self._keeper.pool.read(np.concatenate(kept)))
        store.write(np.repeat(entries, count), np.repeat(at, count) + ranges(count), self._of_new(np.concatenate(new)))

    def keep(self, which: Sequence[int]) -> None:
        """Cache the prefixes ``which``. Only after all others were read: cached tokens may be evicted for them."""
        places, index = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for j in which:
            if len(self.new[j]):
                at, added = self._keeper.add(self.prefixes[j])
                places.append(added)
                index.append(self.new[j][at - len(self.kept[j]) :])
        self._keeper.pool.write(np.concatenate(places), self._of_new(np.concatenate(index)))
        if len(self.experts):
            self._keeper.pool.experts[np.concatenate(places)] = self.experts[np.concatenate(index)]
        self._keeper.trim()


class ModelPrefillPlan(PrefillPlan):
    """The same where the engine keeps what the model caches: see ``models/model_cache.py``."""

    def __init__(self, prefixes: Sequence[Sequence[int]], keeper: Keeper, cache: ModelCache) -> None:
        super().__init__(prefixes, keeper)
        self._cache = cache

    def update(self, layer: int, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        key, value = (x.to(self._keeper.pool.kv) for x in self._cache.joined(first, second))
        whole = torch.cat(self._with_kept(self._cache.row(layer), key, value), -1)
        return self._cache.parted(layer, whole.squeeze(1))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        return TreePlan.attend(self, layer, query, key, value, **how)


def ranges(count: Ints) -> Ints:
    """0 .. count-1 for each count, concatenated."""
    ends = np.cumsum(count)
    return np.arange(ends[-1]) - np.repeat(ends - count, count)
