"""CurES: a Bayesian estimate of each task's accuracy decides which tasks are drawn, and how many samples each gets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.settings import Composition, CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Task, TaskSource
from lyceum.curriculum._rounds import Tested, TestedRounds
from lyceum.curriculum.base import samples_as_in, success, without_replacement
from lyceum.models.policy import Policy


class PosteriorDraws(CurriculumSettings):
    """Rounds: a pool of tasks is tested, then tasks are drawn from it by the standard deviation of their outcomes,
    which also shares out a step's rollouts.

    Source: CurES, arXiv:2510.01037, and its released code (epic/), where a round is a run of ten steps on another part
    of the data.
    """

    gives: ClassVar = ("end",)
    kind: Literal["posterior"] = "posterior"
    samples: int = Field(default=8, ge=2)
    """Mean rollouts per task: a step's total is exactly this times its tasks. ``rollout.samples``, or a search's
    ``rollout.trajectories``, must be the same."""
    least: int = Field(default=2, ge=1)
    """Minimum rollouts of a drawn task."""
    allocate: bool = True
    """Whether tasks of a larger standard deviation get more of a step's rollouts; otherwise each gets ``samples``."""
    pool: int = Field(default=128, ge=1)
    """Tasks tested per round, in whole steps."""
    tests: int = Field(default=4, ge=1)
    """Samples per tested task, which are not trained on."""
    picks: int = Field(default=256, ge=1)
    """Draws for training per round: a task may come again in another step."""
    temperature: float = Field(default=0.1, ge=1e-6)
    """Temperature of the draws, in the unit of the standard deviation (0 to 0.5); smaller is greedier."""

    @model_validator(mode="after")
    def _numbers_fit(self) -> PosteriorDraws:
        if self.least > self.samples:
            raise ValueError(f"least: got {self.least}, but samples is {self.samples}; allowed: 1 to {self.samples}")
        return self

    def check(self, stage: Composition) -> list[str]:
        return samples_as_in(stage, self.samples)

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> PosteriorCurriculum:
        return PosteriorCurriculum(self, source, seed=seed)


class PosteriorCurriculum(TestedRounds):
    """Its state: that of the rounds, and the counts of the pool's tasks."""

    def __init__(self, settings: PosteriorDraws, source: TaskSource, *, seed: int) -> None:
        super().__init__(source, pool=settings.pool, tests=settings.tests, seed=seed)
        self.settings = settings
        self.counts: dict[int, tuple[float, int]] = {}
        """Of each task of the pool, by its index: correct samples, and all."""
        self.picked = 0
        self._place: dict[str, int] = {}
        self._granted: list[int] = []

    @property
    def done(self) -> str:
        if not self.counts or any(0 < solved < samples for solved, samples in self.counts.values()):
            return ""
        return f"none of the {len(self.counts)} tasks of its pool is solved some of the time"

    def begin(self, tested: list[Tested]) -> None:
        self.counts = {each.index: (each.solved, each.samples) for each in tested}
        self._place = {self.source[index].id: index for index in self.counts}
        self.picked = 0

    def train(self, n: int) -> list[Task]:
        settings = self.settings
        count = min(n, settings.picks - self.picked, len(self.counts))
        if count <= 0:
            return []
        indices = list(self.counts)
        deviation = np.array([outcome_deviation(*self.counts[index]) for index in indices])
        rng = np.random.default_rng([self.seed, self.round, self.picked])
        chosen = without_replacement(deviation / settings.temperature, count, rng)
        self.picked += count
        tasks = [self.source[indices[i]] for i in chosen]
        if not settings.allocate:
            return tasks
        granted = allocate(deviation[chosen], settings.samples * count, least=settings.least)
        return [replace(task, samples=samples) for task, samples in zip(tasks, granted, strict=True)]

    def learn(self, trees: Sequence[Tree]) -> None:
        self._granted = [tree.task.samples for tree in trees if tree.task.samples is not None]
        for tree in trees:
            index, accuracy = self._place.get(tree.task.id), success(tree)
            if index is not None and accuracy is not None:
                solved, samples = self.counts[index]
                more = len(tree.unaided)
                self.counts[index] = solved + min(max(accuracy, 0.0), 1.0) * more, samples + more

    def metrics(self) -> dict[str, float]:
        metrics = super().metrics()
        if self._granted:
            metrics = metrics | {"most-samples/task": max(self._granted), "least-samples/task": min(self._granted)}
        if self.counts:
            metrics = metrics | {
                "accuracy/pool": fmean(posterior_mean(*count) for count in self.counts.values()),
                "deviation/pool": fmean(outcome_deviation(*count) for count in self.counts.values()),
            }
        return metrics

    def state_dict(self) -> dict[str, Any]:
        counts = [[index, solved, samples] for index, (solved, samples) in self.counts.items()]
        return {**super().state_dict(), "counts": counts, "picked": self.picked}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.begin([Tested(int(index), float(solved), int(samples)) for index, solved, samples in state["counts"]])
        self.picked = int(state["picked"])


def posterior_mean(solved: float, samples: int) -> float:
    """Mean of the posterior Beta(1 + solved, 1 + samples - solved) of an accuracy, from a uniform prior.

        p = (1 + s) / (2 + n)

    Source:
        CurES' released code (epic/epic_sampler.py, update_difficulty).
    """
    return (1 + solved) / (2 + samples)


def outcome_deviation(solved: float, samples: int) -> float:
    """Standard deviation of one outcome at the posterior mean: sqrt(p (1 - p)), 0 .. 0.5.

    Source:
        CurES' released code: tasks are drawn by softmax of this over a temperature (epic/epic_sampler.py). Rollouts are
        shared out by the square root of

            p (1 - p)^2 E[g_right^2] + p^2 (1 - p) E[g_wrong^2] - p^2 (1 - p)^2 (E[g_right] - E[g_wrong])^2

        with g the norms of the gradients of right and wrong samples (epic/stage_0_init_difficulty_sample_size.py),
        which is proportional to this where all norms are equal, as they are taken to be here.
    """
    p = posterior_mean(solved, samples)
    return math.sqrt(p * (1 - p))


def allocate(deviation: Float[np.ndarray, " task"], total: int, *, least: int) -> list[int]:
    """Rollouts of each task, ``total`` together, in proportion to its standard deviation but at least ``least``.

    Fractions go to those with the largest remainders, ties to the first.

    Args:
        deviation: above 0.
        total: at least ``least`` for each.
    """
    further = np.maximum(total * deviation / deviation.sum() - least, 0)
    left = total - least * len(deviation)
    exact = further * (left / further.sum()) if left else np.zeros(len(deviation))
    whole = np.floor(exact + 1e-9).astype(int)
    largest = np.argsort(-(exact - whole), kind="stable")[: left - whole.sum()]
    whole[largest] += 1
    return [least + int(samples) for samples in whole]
