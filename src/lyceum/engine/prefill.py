"""Prompts of waiting requests in one forward: what they begin with alike is computed once, what is kept not at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lyceum.attention import TreePlan
from lyceum.engine.cache import Keeper, Kept


class PrefillPlan(TreePlan):
    """Attention of new prompt tokens to their own prefix, of which a beginning may be kept from earlier.

    Prefixes that begin alike (a system prompt, few-shot examples) are computed once: sorted, each shares with the one
    before it what both begin with.
    """

    def __init__(self, prefixes: Sequence[Sequence[int]], keeper: Keeper, shape: tuple[int, int, int]) -> None:
        self._shape = shape
        self.tokens: list[int] = []
        self.position: list[int] = []
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._kept = [keeper.longest(prefix) for prefix in prefixes]
        self._prefixes = prefixes
        runs = {id(run): run for found, _ in self._kept for run in found}
        self._runs = list(runs.values())
        new_paths: dict[int, list[int]] = {}
        owned: dict[int, int] = {}
        before: list[int] = []
        before_path: list[int] = []
        before_top: Kept | None = None
        for j in sorted(range(len(prefixes)), key=lambda j: tuple(prefixes[j])):
            found, at = self._kept[j]
            prefix = list(prefixes[j])
            top = found[-1] if found else None
            same = 0
            if top is before_top:
                same = next((i for i, (x, y) in enumerate(zip(prefix, before, strict=False)) if x != y), len(before))
            path = before_path[: max(0, same - at)]
            owned[j] = len(path)
            first = at + len(path)
            path = path + list(range(len(self.tokens), len(self.tokens) + len(prefix) - first))
            self.tokens += prefix[first:]
            self.position += range(first, len(prefix))
            new_paths[j] = path
            before, before_path, before_top = prefix, path, top
        # Kept tokens are numbered behind the new ones.
        offset, run_index = len(self.tokens), {}
        for run in self._runs:
            run_index[id(run)] = list(range(offset, offset + len(run.tokens)))
            offset += len(run.tokens)
        self.paths = [
            torch.tensor([i for run in self._kept[j][0] for i in run_index[id(run)]] + new_paths[j], dtype=torch.long)
            for j in range(len(prefixes))
        ]
        self._new_from = [len(self.paths[j]) - len(new_paths[j]) for j in range(len(prefixes))]
        if self.tokens:
            super().__init__(self.paths, [self._new_from[j] + owned[j] for j in range(len(prefixes))])

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        kept_keys = [run.key[layer].transpose(0, 1) for run in self._runs]
        kept_values = [run.value[layer].transpose(0, 1) for run in self._runs]
        self.keys.append(torch.cat([key, *kept_keys]))
        self.values.append(torch.cat([value, *kept_values]))
        return super().attend(layer, query, self.keys[-1], self.values[-1], scale=scale, window=window)

    def cache(self, j: int) -> tuple[Tensor, Tensor]:
        """Keys and values (layer, head, tokens, dim) of prefix j."""
        if self.keys:
            path = self.paths[j].to(self.keys[0].device)
            key, value = (torch.stack([x[path] for x in side]).transpose(1, 2) for side in (self.keys, self.values))
            return key, value
        layers, heads, dim = self._shape
        empty = [torch.zeros(layers, heads, 0, dim)]
        found = self._kept[j][0]
        return torch.cat([run.key for run in found] or empty, 2), torch.cat([run.value for run in found] or empty, 2)

    def keep_new(self, j: int, keeper: Keeper) -> Kept | None:
        """Keep what was computed for prefix j; returns the deepest kept run of it."""
        found, at = self._kept[j]
        above = found[-1] if found else None
        key, value = self.cache(j)
        return keeper.keep(above, tuple(self._prefixes[j][at:]), key[:, :, at:], value[:, :, at:])
