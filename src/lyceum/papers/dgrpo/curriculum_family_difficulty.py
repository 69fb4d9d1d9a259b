"""DGRPO: each group's advantages times the difficulty of its task family and that of the task itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field

from lyceum.core.component import of_kind, slot
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, TaskSource
from lyceum.curriculum.base import Around, categories_of, category_of
from lyceum.models.policy import Policy
from lyceum.utils.numbers import mean


class FamilyDifficulty(CurriculumSettings):
    """The draws of another curriculum, each group weighted by the running difficulty of its family, relative to the
    other families', and by its own.

    Source: VITAL, arXiv:2508.04416, whose DGRPO weights advantages by task-level and sample-level difficulty. Its
    equations could not be read: the form is ours.
    """

    kind: Literal["family-difficulty"] = "family-difficulty"
    by: str = "provenance"
    """Column that names a task's family, or ``provenance``."""
    family: bool = True
    """Whether a family's difficulty counts."""
    item: bool = True
    """Whether a task's own difficulty counts."""
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Share of a family's running mean reward that is kept at each step that has outcomes of it (no unit)."""
    most: float = Field(default=4.0, ge=1)
    """Maximum weight from either difficulty (no unit)."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""

    def check_tasks(self, source: TaskSource) -> None:
        """Refuse tasks without a family."""
        categories_of(source, self.by)
        super().check_tasks(source)

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return FamilyDifficultyCurriculum(self, self.draws.build(source, seed=seed, policy=policy))


class FamilyDifficultyCurriculum(Around):
    """Its state: each family's running mean reward; none before its first outcome."""

    def __init__(self, settings: FamilyDifficulty, inner: Curriculum) -> None:
        super().__init__(inner)
        self.settings = settings
        self.reward: dict[str, float] = {}
        self._metrics: dict[str, float] = {}

    def weight(self, tree: Tree) -> float:
        settings, weight = self.settings, self.inner.weight(tree)
        family, own = category_of(tree.task, settings.by), mean_reward(tree)
        if settings.family and family in self.reward:
            weight *= relative_difficulty(self.reward[family], list(self.reward.values()), most=settings.most)
        if settings.item and own is not None:
            weight *= min(2 * (1 - own), settings.most)
        return weight

    def observe(self, trees: Sequence[Tree]) -> None:
        weights: dict[str, list[float]] = defaultdict(list)
        rewards: dict[str, list[float]] = defaultdict(list)
        for tree in trees:
            family = category_of(tree.task, self.settings.by)
            weights[family].append(self.weight(tree))
            if (own := mean_reward(tree)) is not None:
                rewards[family].append(own)
        decay = self.settings.decay
        for family, found in rewards.items():
            before = self.reward.get(family)
            self.reward[family] = fmean(found) if before is None else decay * before + (1 - decay) * fmean(found)
        self._metrics = {f"weight/{family}": fmean(found) for family, found in weights.items()}
        self._metrics |= {f"reward/{family}": reward for family, reward in self.reward.items()}
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        return {**self._metrics, **super().metrics()}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "reward": dict(self.reward)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.reward = {family: float(reward) for family, reward in state["reward"].items()}


def mean_reward(tree: Tree) -> float | None:
    """Mean outcome of the trajectories, within 0 .. 1: a graded reward tells more of difficulty than a verdict. None
    where nothing was graded."""
    outcomes = [outcome for _, _, outcome in tree.graded_with_outcome()]
    return min(max(mean(outcomes), 0.0), 1.0) if outcomes else None


def relative_difficulty(reward: float, of_all: Sequence[float], *, most: float) -> float:
    """A family's difficulty over the families' mean, so that weights of families average 1.

        w_f = min((1 - m_f) / mean_g (1 - m_g), most)        m: running mean reward, 0 .. 1

    1 where every family is always solved.
    """
    difficulty = 1 - fmean(of_all)
    return min((1 - reward) / difficulty, most) if difficulty > 0 else 1.0
