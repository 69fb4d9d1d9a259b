"""RECAP: tasks of several kinds beside each other, each kind's advantages weighted by how its reward moves of late."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import fmean
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
    """Steps of a category whose mean rewards are looked at, the newer half against the older one (2 W of the paper);
    until all categories have so many, all weigh 1."""
    temperature: float = Field(5, gt=0)
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


LEAST_LOSS = 0.05
"""A mean loss below this counts as this: a category that is nearly always solved would else have any priority."""


def priority(rewards: Sequence[float]) -> float:
    """How much attention an objective gets: the faster its loss falls and the less stable it is, the more.

        s = c + i        c = older / newer        i = std / (older + newer)

    The loss is the shortfall 1 - reward, at least 0; older and newer are its means over the two halves of the window,
    std its deviation from the newer mean over the whole window, with one less than the window's length as the divisor.
    An objective that stands still, saturated or not, has s = 1; one that is forgotten has a c below 1 and a large i.

    Args:
        rewards: mean rewards of the last steps, oldest first, 1 at best; 2 or more.
    Returns:
        More than 0, without unit.
    Source:
        RECAP, arXiv:2510.21978, section 4 (convergence rate, inverse signal-to-noise ratio, equation 1). That a
        reward's loss is its shortfall, and the least loss, are ours.
    """
    losses = [max(1 - reward, 0.0) for reward in rewards]
    middle = len(losses) // 2
    older, newer = (max(fmean(half), LEAST_LOSS) for half in (losses[:middle], losses[middle:]))
    std = math.sqrt(sum((loss - fmean(losses[middle:])) ** 2 for loss in losses) / (len(losses) - 1))
    return older / newer + std / (older + newer)


def softmax_weights(priorities: Sequence[float], temperature: float) -> list[float]:
    """Weights with a mean of 1.

    w_k = K exp(s_k / T) / sum_j exp(s_j / T)        K: how many there are
    """
    highest = max(priorities)
    shares = [math.exp((each - highest) / temperature) for each in priorities]
    return [len(shares) * share / sum(shares) for share in shares]
