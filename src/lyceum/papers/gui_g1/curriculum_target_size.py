"""Weights by the size of what is to be found (GUI-G1): small targets are hard, and count more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from lyceum.core.component import of_kind, slot
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, TaskSource
from lyceum.curriculum.base import Around
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import mean


class TargetSize(CurriculumSettings):
    """The draws of another curriculum, each group weighted by how small its target is."""

    kind: Literal["target-size"] = "target-size"
    typical: float = Field(0.0625, gt=0, le=1)
    """Share of the screen that a target of weight 1 takes."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""

    def check_tasks(self, source: TaskSource) -> None:
        self.draws.check_tasks(source)
        if "area" not in source[0].columns:
            raise RecipeError(
                f"curriculum.kind: got 'target-size', but task {source[0].id!r} says nothing of its target's area; "
                "allowed: tasks with a column 'area', such as kind 'screens'"
            )

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return WeightedBySize(self, self.draws.build(source, seed=seed, policy=policy))


class WeightedBySize(Around):
    """Has no state of its own: a weight depends on the task alone."""

    def __init__(self, settings: TargetSize, inner: Curriculum) -> None:
        super().__init__(inner)
        self.settings = settings
        self.weights: list[float] = []

    def weight(self, tree: Tree) -> float:
        return size_weight(tree.task.columns["area"], self.settings.typical) * self.inner.weight(tree)

    def observe(self, trees: Sequence[Tree]) -> None:
        self.weights = [self.weight(tree) for tree in trees]
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        if not self.weights:
            return dict(self.inner.metrics())
        return {"weight/mean": mean(self.weights), "weight/largest": max(self.weights), **self.inner.metrics()}


def size_weight(area: float, typical: float) -> float:
    """Factor on a group's advantages: sqrt(typical / area).

    Args:
        area: of the target, as a share of the screen's.
        typical: that share where the weight is 1.
    Returns:
        Weight without unit, above 0.
    Source:
        GUI-G1, arXiv:2505.15810, which weights tasks by the inverse of the target's relative size; the released code
        multiplies each task's loss by a number of its data (``rate``), whose formula is not given.
    """
    return math.sqrt(typical / area)
