"""SPO's prioritised sampling: of a pool of drawn tasks, those are likely to be picked whose outcome is uncertain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from lyceum.core.component import of_kind, require_keys, slot
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import Around, success, without_replacement
from lyceum.models.policy import Policy


class Prioritised(CurriculumSettings):
    """From a pool of drawn tasks, a step's are picked with weights sqrt(p (1 - p)) + explore, p being an estimate of a
    task's accuracy that outlives the step.

    Source: SPO, arXiv:2509.13232, and its released code (recipe/spo/spo_ray_trainer.py), where p is the baseline that
    its credit tracks and the pool a batch of the data loader.
    """

    kind: Literal["prioritised"] = "prioritised"
    pool: int = Field(2, ge=1, le=1000)
    """Tasks drawn per picked task; 1 picks all of them."""
    explore: float = Field(0.05, gt=0, le=1)
    """Added to each weight, so that tasks that are always or never solved come again too."""
    keep: float = Field(0.9, ge=0, le=1)
    """Fraction of an estimate's weight that is kept when its task is seen again: the estimate is then of about
    1 / (1 - keep) samples."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Curriculum that draws the pool."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return PrioritisedCurriculum(self, self.draws.build(source, seed=seed, policy=policy), seed=seed)


class PrioritisedCurriculum(Around):
    """Its state: of each task seen, by id, correct and incorrect samples, fading; and how many draws there were."""

    def __init__(self, settings: Prioritised, inner: Curriculum, *, seed: int) -> None:
        super().__init__(inner)
        self.settings, self.seed = settings, seed
        self.counts: dict[str, tuple[float, float]] = {}
        self.drawn = 0
        self._deviations: tuple[float, float] | None = None

    def draw(self, n: int) -> list[Task]:
        pool = self.inner.draw(n * self.settings.pool)
        deviation = [self.deviation(task) for task in pool]
        rng = np.random.default_rng([self.seed, self.drawn])
        self.drawn += 1
        picked = sorted(without_replacement(np.log(np.array(deviation) + self.settings.explore), n, rng))
        self._deviations = (fmean(deviation), fmean(deviation[i] for i in picked)) if picked else None
        return [pool[i] for i in picked]

    def deviation(self, task: Task) -> float:
        """Standard deviation of one outcome of a task at its estimate, 0 to 0.5; that of 0.5 before it was seen."""
        right, wrong = self.counts.get(task.id, (0.5, 0.5))
        return outcome_deviation(right, wrong)

    def observe(self, trees: Sequence[Tree]) -> None:
        for tree in trees:
            accuracy, n = success(tree), len(tree.unaided)
            if accuracy is not None:
                right, wrong = self.counts.get(tree.task.id, (0.5, 0.5))
                solved, keep = min(max(accuracy, 0.0), 1.0) * n, self.settings.keep
                self.counts[tree.task.id] = keep * right + solved, keep * wrong + n - solved
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        if self._deviations is None:
            return super().metrics()
        pool, picked = self._deviations
        return {
            **super().metrics(),
            "deviation/pool": pool,
            "deviation/picked": picked,
            "tasks/known": len(self.counts),
        }

    def state_dict(self) -> dict[str, Any]:
        counts = {id: list(counted) for id, counted in self.counts.items()}
        return {**super().state_dict(), "seed": self.seed, "counts": counts, "drawn": self.drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum.prioritised", given=state, needed=self.state_dict())
        self.inner.load_state_dict(state["inner"])
        self.counts = {id: (float(right), float(wrong)) for id, (right, wrong) in state["counts"].items()}
        self.seed, self.drawn = int(state["seed"]), int(state["drawn"])


def outcome_deviation(right: float, wrong: float) -> float:
    """sqrt(p (1 - p)) with p = right / (right + wrong): the mean of Beta(right, wrong).

    Source:
        SPO's released code (spo_ray_trainer.py, ``prompt2weight``); both counts begin at 0.5 there as here.
    """
    p = right / (right + wrong)
    return math.sqrt(p * (1 - p))
