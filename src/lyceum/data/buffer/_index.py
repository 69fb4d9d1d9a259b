"""Which groups are stored, without their content: 16 bytes of memory each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from lyceum.core.component import require_keys
from lyceum.utils.lazy_imports import torch

_COLUMNS = {"file": np.int64, "row": np.int32, "priority": np.float32}


class Index:
    """Groups in the order in which they were stored, the oldest first.

    Attributes:
        file: number of the file that holds each group, never decreasing.
        row: which of the file's groups it is.
        priority: weight with which it is drawn, where draws are weighted; 0 is never drawn.
    """

    def __init__(self) -> None:
        self.file: Int[NDArray[Any], " n"] = np.empty(0, np.int64)
        self.row: Int[NDArray[Any], " n"] = np.empty(0, np.int32)
        self.priority: Float[NDArray[Any], " n"] = np.empty(0, np.float32)

    def __len__(self) -> int:
        return len(self.file)

    def add(self, file: int, priority: Sequence[float], *, rows: Sequence[int], most: int) -> None:
        """Append groups of a file, in its order; the oldest beyond ``most`` are forgotten."""
        added = {"file": [file] * len(rows), "row": rows, "priority": priority}
        for name, dtype in _COLUMNS.items():
            setattr(self, name, np.concatenate([getattr(self, name), np.array(added[name], dtype)])[-most:])

    def draw(
        self, rng: np.random.Generator, number: int, *, since: int, weighted: bool, newest: bool
    ) -> Int[NDArray[Any], " k"]:
        """Places of at most so many groups, without replacement, in order.

        Args:
            since: the lowest file number that may be drawn from.
            weighted: in proportion to ``priority``; else all alike.
            newest: the last ones instead of random ones.
        """
        first = int(np.searchsorted(self.file, since))
        if newest:
            return np.arange(max(first, len(self) - number), len(self))
        if not weighted:
            left = len(self) - first
            return np.sort(first + rng.choice(left, min(number, left), replace=False))
        # The smallest of exponential times with rates `priority`: draws without replacement in proportion to them.
        likely = first + np.flatnonzero(self.priority[first:] > 0)
        times = rng.exponential(size=len(likely)) / self.priority[likely]
        return np.sort(likely[np.argsort(times, kind="stable")[:number]])

    def remove(self, places: Int[NDArray[Any], " k"]) -> None:
        for name in _COLUMNS:
            setattr(self, name, np.delete(getattr(self, name), places))

    def state_dict(self) -> dict[str, Any]:
        return {name: torch.from_numpy(getattr(self, name)) for name in _COLUMNS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.replay.index", given=state, needed=_COLUMNS)
        for name, dtype in _COLUMNS.items():
            setattr(self, name, state[name].numpy().astype(dtype))
