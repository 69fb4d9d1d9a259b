"""RLCS, curriculum sampling: tiers known beforehand and accuracy measured online shift draws to the middle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, TaskSource
from lyceum.curriculum._bandit import CategoryBandit, CategorySettings
from lyceum.curriculum.base import category_of, success
from lyceum.models.policy import Policy
from lyceum.utils.numbers import mean


class Tiers(CategorySettings):
    """Difficulty tiers drawn by how near half their tasks' accuracy is.

    Source: GLM-4.1V-Thinking and GLM-4.5V, arXiv:2507.01006, section 5.3, which says what is drawn less (too easy and
    too hard) but not by which formula: that is ours.
    """

    kind: Literal["tiers"] = "tiers"
    offline: Literal["ranked", "unknown"] = "ranked"
    """What is assumed of a tier before its first outcome: ``ranked``, accuracies from 1 to 0 at equal distances, the
    easiest tier first, numbers before words; ``unknown``, one half for all."""
    decay: float = Field(default=0.8, ge=0, lt=1)
    """Share of a tier's running accuracy that is kept at each step that has outcomes of it (no unit)."""
    least: float = Field(default=0.1, gt=0, le=1)
    """Weight of a tier of accuracy 0 or 1, relative to one of 1/2 (no unit)."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return TiersCurriculum(self, source, seed=seed)


class TiersCurriculum(CategoryBandit):
    """Its state: each tier's running accuracy."""

    def __init__(self, settings: Tiers, source: TaskSource, *, seed: int) -> None:
        super().__init__(source, by=settings.by, seed=seed)
        self.settings = settings
        names = self.tasks.names
        ranked = [1 - (rank + 0.5) / len(names) for rank in range(len(names))]
        self.accuracy = dict(zip(names, ranked if settings.offline == "ranked" else [0.5] * len(names), strict=True))

    @property
    def shares(self) -> Float[np.ndarray, " category"]:
        weight = mid_range(np.array(list(self.accuracy.values())), self.settings.least)
        return weight / weight.sum()

    def observe(self, trees: Sequence[Tree]) -> None:
        super().observe(trees)
        of_tier: dict[str, list[float]] = defaultdict(list)
        for tree in trees:
            if (accuracy := success(tree)) is not None:
                of_tier[category_of(tree.task, self.by)].append(min(max(accuracy, 0.0), 1.0))
        decay = self.settings.decay
        for tier in self.accuracy.keys() & of_tier.keys():
            self.accuracy[tier] = decay * self.accuracy[tier] + (1 - decay) * mean(of_tier[tier])

    def learn(self, of_category: Mapping[str, list[tuple[float, int]]]) -> None:
        """Advantages are not used: accuracies are, which dropped groups have too."""

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), **{f"accuracy/{name}": value for name, value in self.accuracy.items()}}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "accuracy": dict(self.accuracy)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.accuracy = {name: float(state["accuracy"][name]) for name in self.tasks.names}


def mid_range(accuracy: Float[np.ndarray, " k"], least: float) -> Float[np.ndarray, " k"]:
    """Weight of each accuracy p:  least + (1 - least) 4 p (1 - p),  1 at one half, ``least`` at 0 and 1."""
    return least + (1 - least) * 4 * accuracy * (1 - accuracy)
