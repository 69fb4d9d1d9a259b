"""DUMP: upper confidence bounds per distribution on the mean |advantage| of its latest rollouts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.types import Curriculum, TaskSource
from lyceum.curriculum._bandit import CategoryBandit, CategorySettings, softmax
from lyceum.models.policy import Policy


class Dump(CategorySettings):
    """Distributions drawn by mean |advantage| plus an exploration bonus for few samples."""

    kind: Literal["dump"] = "dump"
    window: int = Field(300, ge=1)
    """Number of latest rollouts per distribution whose |advantage| is averaged."""
    temperature: float = Field(0.1, gt=0)
    """Temperature of the softmax over the bounds, in their unit (mean |advantage|); smaller is greedier."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return DumpCurriculum(self, source, seed=seed)


class DumpCurriculum(CategoryBandit):
    """Its state: each distribution's latest |advantage| by rollout, and how many rollouts it has had."""

    def __init__(self, settings: Dump, source: TaskSource, *, seed: int) -> None:
        super().__init__(source, by=settings.by, seed=seed)
        self.settings = settings
        self.recent: dict[str, deque[float]] = {name: deque(maxlen=settings.window) for name in self.tasks.names}
        self.rollouts = dict.fromkeys(self.tasks.names, 0)

    @property
    def bounds(self) -> Float[np.ndarray, " category"]:
        mean = np.array([sum(recent) / len(recent) if recent else 0.0 for recent in self.recent.values()])
        return upper_confidence(mean, np.array([self.rollouts[name] for name in self.tasks.names]))

    @property
    def shares(self) -> Float[np.ndarray, " category"]:
        return softmax(self.bounds, self.settings.temperature)

    def learn(self, of_category: Mapping[str, list[tuple[float, int]]]) -> None:
        for name in self.recent.keys() & of_category.keys():
            for advantage, count in of_category[name]:
                self.recent[name].extend([advantage] * count)
                self.rollouts[name] += count

    def metrics(self) -> dict[str, float]:
        bounds = zip(self.tasks.names, self.bounds, strict=True)
        return {**super().metrics(), **{f"bound/{name}": float(bound) for name, bound in bounds}}

    def state_dict(self) -> dict[str, Any]:
        recent = {name: list(values) for name, values in self.recent.items()}
        return {**super().state_dict(), "recent": recent, "rollouts": dict(self.rollouts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.recent = {name: deque(state["recent"][name], self.settings.window) for name in self.tasks.names}
        self.rollouts = {name: int(state["rollouts"][name]) for name in self.tasks.names}


def upper_confidence(mean: Float[np.ndarray, " k"], rollouts: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """UCB of each distribution:  m_j + sqrt(2 ln(N + 1) / (n_j + 1)),  N = max(1, sum_j n_j).

    Args:
        mean: m_j, mean |advantage| of its latest rollouts; 0 where there is none.
        rollouts: n_j, all it has had.
    Source:
        DUMP, arXiv:2504.09710, and its released code (verl/utils/curriculum_learning.py, compute_sampling_weights),
        which counts rollouts and not draws.
    """
    return mean + np.sqrt(2 * np.log(max(1, rollouts.sum()) + 1) / (rollouts + 1))
