"""Long prompts that slots share: stored once beside the slots, as long as one of them is live."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from lyceum.engine._cache import Store
from lyceum.engine._plan import SharedPart
from lyceum.engine._slots import Slots
from lyceum.utils.lazy_imports import Tensor, torch


class Prompts:
    """Dense entries 0 .. n-1, like the slots."""

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        self._heads = shape[1]
        self._store = Store(shape, dtype, device)
        self._length: list[int] = []

    def __len__(self) -> int:
        return len(self._length)

    def add(self, kv: Float[Tensor, "layer 2 n head dim"]) -> int:
        """Add keys and values of a prompt; returns its entry."""
        self._store.put(len(self), kv)
        self._length.append(kv.shape[2])
        return len(self) - 1

    def release(self, slots: Slots) -> None:
        """Free prompts that no slot uses; the last ones move into their entries."""
        if not self._length:
            return
        users = np.bincount(slots.shared[slots.shared >= 0], minlength=len(self))
        for entry in np.flatnonzero(users == 0)[::-1].tolist():
            last = len(self) - 1
            if entry != last:
                self._store.copy([last], [entry], self._length[last])
                self._length[entry] = self._length[last]
                slots.shared[slots.shared == last] = entry
            self._length.pop()

    def part(self, slots: Slots) -> SharedPart | None:
        """Which slots attend to which prompt; None where there is none."""
        return SharedPart.of(self._store, self._length, slots.shared, self._heads) if self._length else None
