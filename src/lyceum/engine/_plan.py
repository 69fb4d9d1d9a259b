"""Attention of the embedded engine: a prefill of waiting requests, in one forward, and a decoding step.

In a prefill common prefixes are computed once, cached ones not at all. A decoding step is one new token per slot, which
attends to the slot's own tokens and to the prompt that it shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Unpack

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from lyceum.core.types import Choices
from lyceum.engine._cache import Ints, Keeper, Store, common
from lyceum.models.model_cache import ModelCache
from lyceum.models.tree_attention import Scoring, TreePlan, weights_of
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

    def fill(self, store: Store, into: Sequence[tuple[int, int]], above: Sequence[int] = ()) -> None:
        """Write prefixes to allocated entries of a store: (entry, prefix).

        Args:
            above: how many tokens at the beginning of each prefix are not part of its entry; by default none.
        """
        if not into:
            return
        entries, first = np.array([entry for entry, _ in into]), above or [0] * len(into)
        kept = [self.kept[j][n:] for (_, j), n in zip(into, first, strict=True)]
        new = [self.new[j][max(0, n - len(self.kept[j])) :] for (_, j), n in zip(into, first, strict=True)]
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


@dataclass
class SharedPart:
    """Which slots attend to which shared prompt: P prompts, at most n slots each."""

    store: Store
    slot: Int[Tensor, "P n"]  # slots of each prompt, padded with 0
    place: Int[Tensor, " A"]  # index of each slot in the flattened (P, n)
    mask: Float[Tensor, "prompt_heads 1 length"]  # 0 where the prompt has a token, -inf past its end

    @classmethod
    def of(cls, store: Store, lengths: list[int], shared: NDArray[np.int64], heads: int) -> SharedPart:
        """
        Args:
            store: keys and values of the prompts.
            lengths: tokens of each prompt.
            shared: the prompt of each slot, -1 for none.
            heads: key-value heads.
        """
        alone = bool((shared < 0).any())
        if alone:
            # Slots without a shared prompt attend to a prompt of no tokens.
            shared = np.where(shared < 0, len(lengths), shared)
            lengths = [*lengths, 0]
            store.reserve(len(lengths), 1)
        members = np.bincount(shared, minlength=len(lengths))
        order = np.argsort(shared, kind="stable")
        inside = np.arange(len(shared)) - np.repeat(np.cumsum(members) - members, members)
        width = int(members.max())
        slot = np.zeros((len(lengths), width), np.int64)
        slot[shared[order], inside] = order
        place = np.empty(len(shared), np.int64)
        place[order] = shared[order] * width + inside
        past = np.arange(max(lengths)) >= np.array(lengths)[:, None]
        mask = torch.zeros(past.shape).masked_fill_(torch.from_numpy(past), float("-inf"))
        like = store.kv
        return cls(
            store,
            torch.from_numpy(slot).to(like.device),
            torch.from_numpy(place).to(like.device),
            mask.repeat_interleave(heads, 0).unsqueeze(1).to(like),
        )


class DecodePlan:
    """Attention of one new token for each of A slots. Made when slots join, branch or leave; ``advance`` between steps.

    Args:
        store: keys and values of the slots, with space for the new tokens.
        length: tokens that each slot holds before this one.
    """

    def __init__(self, store: Store, length: NDArray[np.int64], part: SharedPart | None) -> None:
        self.store, self.part = store, part
        self.count, self.heads, self.dim = len(length), store.kv.shape[3], store.kv.shape[5]
        self.longest = int(length.max()) + 1
        # One row for each slot and key-value head, as the matrix products take them.
        self.at = torch.from_numpy(length).to(store.kv.device).repeat_interleave(self.heads)
        self.row = torch.arange(len(self.at), device=store.kv.device)
        self.uniform = bool((length == length[0]).all())
        self._whole: Tensor | None = None
        self._mask: dict[tuple[int | None, int | None], Tensor | None] = {}
        self._unread = store.kv.new_zeros(())
        self._look_at_store()
        self._look()

    def advance(self) -> None:
        """Move on to the next token of the same slots. The store has space for it."""
        self.at += 1
        self.longest += 1
        self._mask = {}
        if self._whole is not None and self._whole.shape[-1] >= self.longest:
            self._whole[self.row, 0, self.at] = 0
        else:
            self._whole = None
        if self.store.kv is self._looked_at:
            self._written += 1
        else:
            self._look_at_store()
        self._look()

    def _look_at_store(self) -> None:
        kv = self._looked_at = self.store.kv
        layers, _, _, _, places, _ = kv.shape
        self._written = self.row * places + self.at
        flat = kv.view(layers, 2, -1, self.dim)
        self._flat_keys, self._flat_values = flat[:, 0].unbind(0), flat[:, 1].unbind(0)
        used = kv[:, :, : self.count].flatten(2, 3)
        self._all_keys, self._all_values = used[:, 0].transpose(2, 3), used[:, 1]

    def _look(self) -> None:
        """Update the views of the places that hold tokens now, in each layer."""
        self._keys = self._all_keys[..., : self.longest].unbind(0)
        self._values = self._all_values[:, :, : self.longest].unbind(0)

    def mask(self, window: int | None, chunk: int | None = None) -> Float[Tensor, "row_heads 1 longest"] | None:
        """Additive: 0 for a token that the new one sees, -inf for others; None where it sees all."""
        if window is not None and window >= self.longest:
            window = None
        if chunk is not None and chunk >= self.longest:
            chunk = None
        wanted = (window, chunk)
        if wanted not in self._mask:
            self._mask[wanted] = self._causal() if wanted == (None, None) else self._limited(window, chunk)
        return self._mask[wanted]

    def _causal(self) -> Tensor | None:
        if self.uniform:
            return None
        if self._whole is None:
            # Wider than needed, so that ``advance`` only unmasks one more place per slot.
            at = torch.arange(self.longest + 64, device=self.at.device)
            self._whole = self._additive(at <= self.at[:, None])
        return self._whole[:, :, : self.longest]

    def _limited(self, window: int | None, chunk: int | None) -> Tensor:
        at = torch.arange(self.longest, device=self.at.device)
        distance = self.at[:, None] - at
        visible = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        if chunk is not None:
            visible &= (self.at // chunk)[:, None] == at // chunk
        return self._additive(visible)

    def _additive(self, visible: Tensor) -> Tensor:
        zeros = torch.zeros(visible.shape, dtype=self.store.kv.dtype, device=visible.device)
        return zeros.masked_fill_(~visible, float("-inf")).unsqueeze(1)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """(A, H, D) queries, (A, Hkv, D) keys and values of the new tokens -> (A, H, D)."""
        self._write(layer, key, value)
        # Query heads that share a key head are rows of one product.
        q = query.reshape(len(self.at), -1, self.dim)
        if self.part is None:  # runs in each layer for each token: a step of few rows is mostly such calls
            scores = self._scores(q, self._keys[layer], self.mask(how["window"], how.get("chunk")), how)
            return torch.bmm(self._weights(scores, how), self._values[layer]).view(query.shape)
        keys, values = self._of_prompts(self.part, layer).flatten(1, 2)
        above = keys.transpose(1, 2), values
        return self._attended(self.heads, q, (self._keys[layer], self._values[layer]), above, how).view(query.shape)

    def _of_prompts(self, part: SharedPart, layer: int) -> Float[Tensor, "2 P head length dim"]:
        return part.store.kv[layer][:, : len(part.slot), :, : part.mask.shape[-1]]

    def _attended(
        self, heads: int, q: Tensor, own: tuple[Tensor, Tensor], above: tuple[Tensor, Tensor] | None, how: Scoring
    ) -> Float[Tensor, "row_heads q width"]:
        """Of each slot and key head, to the slot's own keys (transposed) and values, and to those of its prompt."""
        keys, values = own
        mask = self.mask(how["window"], how.get("chunk"))
        if mask is not None and heads != self.heads:
            mask = mask.repeat_interleave(heads, 0)
        scores = self._scores(q, keys, mask, how)
        if self.part is None or above is None:
            return torch.bmm(self._weights(scores, how), values)
        if how["window"] is not None or how.get("chunk") is not None:
            raise NotImplementedError("shared prompts with sliding-window or chunked attention")
        return self._with_shared(self.part, heads, q, scores, above, values, how)

    def _write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Store what is cached of the new tokens."""
        self._flat_keys[layer].index_copy_(0, self._written, key.reshape(-1, self.dim))
        self._flat_values[layer].index_copy_(0, self._written, value.reshape(-1, self.dim))

    def _with_shared(
        self,
        part: SharedPart,
        heads: int,
        q: Tensor,
        scores: Tensor,
        above: tuple[Tensor, Tensor],
        values: Tensor,
        how: Scoring,
    ) -> Tensor:
        """One softmax over the prompt's scores and the slot's own."""
        prompts, width = part.slot.shape
        length = part.mask.shape[-1]
        mask = part.mask if heads == self.heads else part.mask.repeat_interleave(heads, 0)

        def by_prompt(x: Tensor) -> Tensor:
            grouped = x.view(self.count, heads, -1, x.shape[-1])[part.slot]
            return grouped.transpose(1, 2).reshape(prompts * heads, -1, x.shape[-1])

        def by_slot(x: Tensor) -> Tensor:
            spread = x.view(prompts, heads, width, -1, x.shape[-1]).transpose(1, 2)
            return spread.flatten(0, 1)[part.place].flatten(0, 1)

        of_prompt = by_slot(self._scores(by_prompt(q), above[0], mask, how))
        weight = self._weights(torch.cat((of_prompt, scores), -1), how)
        from_prompt = by_slot(torch.bmm(by_prompt(weight[..., :length].contiguous()), above[1]))
        return torch.baddbmm(from_prompt, weight[..., length:], values)

    def _scores(self, q: Tensor, keys: Tensor, mask: Tensor | None, how: Scoring) -> Tensor:
        scale, softcap = how["scale"], how.get("softcap")
        if softcap is not None:
            scores = torch.baddbmm(self._unread, q, keys, beta=0, alpha=scale / softcap).tanh_().mul_(softcap)
            return scores if mask is None else scores.add_(mask)
        if mask is None:
            return torch.baddbmm(self._unread, q, keys, beta=0, alpha=scale)
        return torch.baddbmm(mask, q, keys, alpha=scale)

    def _weights(self, scores: Float[Tensor, "row_heads q k"], how: Scoring) -> Float[Tensor, "row_heads q k"]:
        if (sinks := how.get("sinks")) is None:
            return torch.softmax(scores, -1)
        of_query = sinks.view(-1, scores.shape[1], 1).repeat(self.count, 1, 1)
        return weights_of(scores, of_query)


class ModelDecodePlan(DecodePlan):
    """The same where the engine keeps what the model caches: see ``models/model_cache.py``."""

    def __init__(self, store: Store, length: NDArray[np.int64], part: SharedPart | None, cache: ModelCache) -> None:
        super().__init__(store, length, part)
        self._cache = cache

    def update(self, layer: int, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Of all places of all slots, one slot after another, and then of the prompts that they share."""
        row = self._cache.row(layer)
        key, value = self._cache.joined(first, second)
        self._write(row, key.to(self.store.kv), value.to(self.store.kv))
        whole = _tokens(self.store.kv[row, :, : self.count, 0, : self.longest])
        if self.part is not None:
            whole = torch.cat((whole, _tokens(self._of_prompts(self.part, row)[:, :, 0])))
        return self._cache.parted(layer, whole)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        heads, own = key.shape[1], self.count * self.longest

        def by_head(key: Tensor, value: Tensor, entries: int) -> tuple[Tensor, Tensor]:
            keys, values = (
                x.reshape(entries, -1, heads, x.shape[-1]).transpose(1, 2).flatten(0, 1) for x in (key, value)
            )
            return keys.transpose(1, 2), values

        above = None if self.part is None else by_head(key[own:], value[own:], len(self.part.slot))
        q = query.reshape(self.count * heads, -1, query.shape[-1])
        out = self._attended(heads, q, by_head(key[:own], value[:own], self.count), above, how)
        return out.view(*query.shape[:2], -1)


def _tokens(kept: Float[Tensor, "2 entry place half"]) -> Float[Tensor, "token twice_half"]:
    """Both halves of each token, entry after entry."""
    return kept.permute(1, 2, 0, 3).flatten(2).flatten(0, 1)
