"""Prompts stored once, beside the slots: long ones while slots attend to them, any other while samples wait for it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from lyceum.engine._cache import Store
from lyceum.engine._plan import SharedPart
from lyceum.engine._slots import Job, Slots
from lyceum.utils.lazy_imports import Tensor, torch


class SharedPrompts:
    """Dense entries 0 .. n-1, like the slots: all tokens of a request's prefix but the last."""

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        self._heads = shape[1]
        self._store = Store(shape, dtype, device)
        self._job: list[Job] = []

    def __len__(self) -> int:
        return len(self._job)

    @property
    def jobs(self) -> list[Job]:
        return list(self._job)

    def add(self, job: Job, kv: Float[Tensor, "layer 2 n head dim"]) -> None:
        self._store.put(len(self), kv)
        self._job.append(job)

    def put(self, job: Job, kv: Float[Tensor, "layer 2 n head dim"]) -> None:
        """Its prompt, computed again."""
        self._store.put(self.entry(job), kv)

    def entry(self, job: Job) -> int:
        return self._job.index(job)

    def read(self, job: Job) -> Float[Tensor, "layer 2 n head dim"]:
        return self._store.kv[:, :, self.entry(job), :, : _length(job)].transpose(2, 3)

    def release(self, slots: Slots) -> None:
        """Free prompts that no slot attends to and no sample waits for; the last ones move into their entries."""
        if not self._job:
            return
        used = np.array([job.waits for job in self._job])
        used[slots.shared[slots.shared >= 0]] = True
        for entry in np.flatnonzero(~used)[::-1].tolist():
            last, job = len(self) - 1, self._job.pop()
            if entry != last:
                self._store.copy([last], [entry], _length(job))
                self._job[entry] = job
                slots.shared[slots.shared == last] = entry

    def part(self, slots: Slots) -> SharedPart | None:
        """Which slots attend to which prompt; None where none does."""
        if not (slots.shared >= 0).any():
            return None
        return SharedPart.of(self._store, [_length(job) for job in self._job], slots.shared, self._heads)


def _length(job: Job) -> int:
    return len(job.request.prefix) - 1
