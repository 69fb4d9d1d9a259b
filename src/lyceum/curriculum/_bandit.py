"""What bandits over categories share: a task's category is sampled by its share; outcomes are fed back by category."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from lyceum.core.component import require_keys
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Task, TaskSource
from lyceum.curriculum.base import TasksByCategory, Unweighted, categories_of, category_of


class CategorySettings(CurriculumSettings):
    """Settings of every bandit over categories."""

    by: str = "level"
    """Column that names a task's category, or ``provenance``: each category is an arm."""

    def check_tasks(self, source: TaskSource) -> None:
        """Refuse tasks without a category."""
        categories_of(source, self.by)


class CategoryBandit(Unweighted):
    """Draws tasks by their category; a subclass computes the shares from the observed outcomes.

    Draw number k of a run is a function of (seed, k, shares at that time).
    """

    def __init__(self, source: TaskSource, *, by: str, seed: int) -> None:
        self.tasks = TasksByCategory(source, by=by, seed=seed)
        self.by = by
        self.draws = 0
        self.drawn: Counter[str] = Counter()
        """Trees of each category in the last observed step."""

    @property
    def shares(self) -> Float[np.ndarray, " category"]:
        """Probability of each category, in the order of ``tasks.names``."""
        raise NotImplementedError

    def learn(self, of_category: Mapping[str, list[tuple[float, int]]]) -> None:
        """(mean |advantage|, rollouts) of each graded tree of the step, by category."""
        raise NotImplementedError

    def draw(self, n: int) -> list[Task]:
        names, shares = self.tasks.names, self.shares
        chosen = [pick(shares, unit_draw(self.tasks.seed, self.draws + i)) for i in range(n)]
        self.draws += n
        return [self.tasks.take(names[i]) for i in chosen]

    def observe(self, trees: Sequence[Tree]) -> None:
        self.drawn = Counter(category_of(tree.task, self.by) for tree in trees)
        of_category: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for tree in trees:
            rollouts = len(tree.graded)
            if rollouts and tree.mean_abs_advantage is not None:
                of_category[category_of(tree.task, self.by)].append((tree.mean_abs_advantage, rollouts))
        self.learn(of_category)

    def metrics(self) -> dict[str, float]:
        metrics = {f"drawn/{name}": float(self.drawn[name]) for name in self.tasks.names}
        return metrics | {f"share/{name}": float(p) for name, p in zip(self.tasks.names, self.shares, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        return {"tasks": self.tasks.state_dict(), "draws": self.draws}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum", given=state, needed=self.state_dict())
        self.tasks.load_state_dict(state["tasks"])
        self.draws = int(state["draws"])


def softmax(value: Float[np.ndarray, " k"], temperature: float) -> Float[np.ndarray, " k"]:
    """The Boltzmann distribution: p_i = exp(v_i / T) / sum_j exp(v_j / T).

    Args:
        value: in any unit.
        temperature: T, in the same unit; above 0.
    """
    scaled = np.exp((value - value.max()) / temperature)
    return scaled / scaled.sum()


def pick(share: Float[np.ndarray, " k"], at: float) -> int:
    """The index that a number in 0 .. 1 falls on, where index i has ``share[i]`` of the length."""
    # Shares sum to 1 up to rounding, and a draw just below 1 may fall after the last of them.
    return min(int(np.searchsorted(np.cumsum(share), at, side="right")), len(share) - 1)


def unit_draw(seed: int, position: int) -> float:
    """A number in [0, 1): draw number ``position`` of this seed."""
    # Three numbers, the last one not 0, so that no epoch's order uses the same stream.
    return float(np.random.default_rng([seed, position, 1]).random())
