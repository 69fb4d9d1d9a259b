"""RECAP: tasks of several kinds beside each other, each kind's advantages weighted by how its reward moves of late."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Annotated, Any, Literal

from pydantic import Field

from lyceum.core.component import of_kind, require_keys, slot
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, TaskSource
from lyceum.curriculum.base import Around, categories_of, category_of
from lyceum.models.policy import Policy


class Recap(CurriculumSettings):
    """The draws of another curriculum; a group's advantages are weighted by its category's recent rewards."""

    kind: Literal["recap"] = "recap"
    by: str = "provenance"
    """Column that names a task's category, or ``provenance``: a category is one objective."""
    window: int = Field(8, ge=2, le=1000)
    """Steps of a category whose mean rewards are looked at; until all categories have so many, all weigh 1."""
    temperature: float = Field(0.25, gt=0)
    """Temperature of the softmax over the categories' priorities (no unit): the larger, the more equal the weights."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return RecapCurriculum(self, self.draws.build(source, seed=seed, policy=policy), categories_of(source, self.by))

    def check_tasks(self, source: TaskSource) -> None:
        categories_of(source, self.by)
        self.draws.check_tasks(source)


class RecapCurriculum(Around):
    """Its state are each category's last mean rewards."""

    def __init__(self, settings: Recap, inner: Curriculum, names: Sequence[str]) -> None:
        super().__init__(inner)
        self.settings = settings
        self.rewards = {name: deque[float](maxlen=settings.window) for name in names}

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each category."""
        if any(len(rewards) < self.settings.window for rewards in self.rewards.values()):
            return dict.fromkeys(self.rewards, 1.0)
        priorities = [priority(list(rewards)) for rewards in self.rewards.values()]
        return dict(zip(self.rewards, softmax_weights(priorities, self.settings.temperature), strict=True))

    def weight(self, tree: Tree) -> float:
        # A category that is not among the first tasks is not looked at.
        return self.weights.get(category_of(tree.task, self.settings.by), 1.0) * self.inner.weight(tree)

    def observe(self, trees: Sequence[Tree]) -> None:
        found: defaultdict[str, list[float]] = defaultdict(list)
        for tree in trees:
            category = category_of(tree.task, self.settings.by)
            found[category] += [outcome for _, _, outcome in tree.graded_with_outcome()]
        for name, rewards in self.rewards.items():
            if found[name]:
                rewards.append(fmean(found[name]))
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        return {**{f"weight/{name}": weight for name, weight in self.weights.items()}, **self.inner.metrics()}

    def state_dict(self) -> dict[str, Any]:
        return {"rewards": {name: list(rewards) for name, rewards in self.rewards.items()}, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum.recap", given=state, needed=self.state_dict())
        self.inner.load_state_dict(state["inner"])
        for name, rewards in self.rewards.items():
            rewards.clear()
            rewards.extend(state["rewards"][name])


def priority(rewards: Sequence[float]) -> float:
    """How much an objective deserves attention: the less it converges and the less stable it is, the more.

        s = c * i        c = mean shortfall of the newer half / that of the older half        i = std / |mean| of all

    The shortfall is 1 - reward, at least 0. An objective whose reward stays at 1 or at any other number has s = 0.

    Args:
        rewards: mean rewards of the last steps, oldest first, 1 at best.
    Returns:
        0 or more, without unit.
    Source:
        RECAP, arXiv:2510.21978, takes signals of convergence and instability over a short horizon; this form is ours.
    """
    middle = len(rewards) // 2
    older, newer = (fmean(max(1 - reward, 0.0) for reward in half) for half in (rewards[:middle], rewards[middle:]))
    convergence = newer / older if older > 0 else 1.0
    size = abs(fmean(rewards))
    return convergence * pstdev(rewards) / size if size > 0 else 0.0


def softmax_weights(priorities: Sequence[float], temperature: float) -> list[float]:
    """Weights with a mean of 1.

    w_k = K exp(s_k / T) / sum_j exp(s_j / T)        K: how many there are
    """
    highest = max(priorities)
    shares = [math.exp((each - highest) / temperature) for each in priorities]
    return [len(shares) * share / sum(shares) for share in shares]
