"""The embedded engine for a model that runs over rows: slots that begin together share a cache of transformers' own.

Such a cache holds whatever the model's layers keep (keys, convolutions, states) and cannot be cut at a node. Samples
that have drawn the same tokens still share a slot, and a prompt that several ask for at once is computed once. A prefix
that is continued later is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lyceum.engine._slots import Ints, Job, Joining
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.models.rows import RowCache
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, torch

MAX_CACHES = 8
"""Caches from which on requests wait: their steps are not batched together."""


class RowsEngine(EmbeddedEngine):
    """Implements :class:`lyceum.core.types.Engine`: requests and draws are the embedded engine's."""

    def _reset_cache(self) -> None:
        self._caches: list[RowCache] = []
        # Of each slot: its cache, and its row there.
        self._cache_of: Ints = np.zeros(0, np.int64)
        self._row_of: Ints = np.zeros(0, np.int64)

    def record_routing(self) -> None:
        why = "" if self.policy.by_rows is None else f", since {self.policy.by_rows.why}"
        raise RecipeError(
            f"learner.replay_routing: got true, but the model is sampled over rows{why}, where it is not recorded; "
            "allowed: false"
        )

    def _forget_cache(self) -> None:
        """No cache outlives the requests that it was made for."""

    def _begin(self) -> None:
        """The model is always called as it is."""

    def _admit(self) -> None:
        # What begins together shares a cache, and each cache takes a forward of its own in each step.
        free = self.config.max_sequences - self._slots.members
        if not len(self._slots) or (len(self._caches) < MAX_CACHES and 4 * free >= self.config.max_sequences):
            super()._admit()

    def _join(self, places: Mapping[Job, range]) -> None:
        assert self.policy.by_rows is not None
        together: dict[int, list[Job]] = {}
        for job in places:
            together.setdefault(0 if self.policy.by_rows.pads else len(job.request.prefix), []).append(job)
        joining: list[Joining] = []
        for jobs in together.values():
            paths = [tuple(job.request.prefix[:-1]) for job in jobs]
            cache, row = self._cache_for(paths)
            self.occupancy.prefilled += sum(map(len, {*paths}))
            self._cache_of = np.append(self._cache_of, np.full(len(jobs), len(self._caches)))
            self._row_of = np.append(self._row_of, np.arange(len(jobs)))
            self._caches.append(cache)
            cache.select(row)
            joining += [self._joining(job, places[job], len(job.request.prefix) - 1) for job in jobs]
        self._slots.join(joining)
        for job, members in places.items():
            job.started = members.stop

    def _recompute(self) -> None:
        behind = [tuple(path) for path in self._behind()]
        for n in range(len(self._caches)):
            of_cache = np.flatnonzero(self._cache_of == n)
            of_cache = of_cache[np.argsort(self._row_of[of_cache])]
            self._caches[n], row = self._cache_for([behind[slot] for slot in of_cache])
            self._caches[n].select(row)
            self.occupancy.recomputed += sum(map(len, {behind[slot] for slot in of_cache}))

    def _cache_for(self, prefixes: list[tuple[int, ...]]) -> tuple[RowCache, Tensor]:
        """A cache of the different ones among prefixes, and the row of each prefix."""
        assert self.policy.by_rows is not None
        place = {prefix: n for n, prefix in enumerate(dict.fromkeys(prefixes))}
        cache = RowCache(self.policy.backbone, list(place), self.policy.by_rows, self.policy.device)
        return cache, torch.tensor([place[prefix] for prefix in prefixes], device=self.policy.device)

    def _feed(self) -> Tensor:
        slots, hidden, order = self._slots, list[Tensor](), list[Ints]()
        for n, cache in enumerate(self._caches):
            of_cache = np.flatnonzero(self._cache_of == n)
            of_cache = of_cache[np.argsort(self._row_of[of_cache])]
            token = torch.from_numpy(slots.token[of_cache]).to(self.policy.device)
            hidden.append(cache.feed(token))
            order.append(of_cache)
        back = np.argsort(np.concatenate(order))
        return self.policy.head(torch.cat(hidden)[torch.from_numpy(back).to(self.policy.device)])

    def _move(self, source: Ints, target: Ints) -> None:
        origin = np.arange(len(self._slots))
        origin[target] = source
        cache_of, row_of = self._cache_of[origin], self._row_of[origin]
        left = np.unique(cache_of)
        for n in left.tolist():
            of_cache = np.flatnonzero(cache_of == n)
            rows = row_of[of_cache]
            if not np.array_equal(rows, np.arange(len(self._caches[n]))):
                self._caches[n].select(torch.from_numpy(rows).to(self.policy.device))
                row_of[of_cache] = np.arange(len(rows))
        self._caches = [self._caches[n] for n in left.tolist()]
        self._cache_of, self._row_of = np.searchsorted(left, cache_of), row_of

    def _keep(self, ended: Ints) -> None:
        """Nothing is kept for later: see the module."""
