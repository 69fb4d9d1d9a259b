"""Online difficulty soft weighting (PCuRL): each group's advantages times a function of its own success rate."""

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

Shape = Literal["easy", "medium", "hard", "binary-easy", "binary-medium", "binary-hard"]

KEPT: dict[Shape, tuple[float, float]] = {
    "binary-easy": (0.5, 1.0),
    "binary-medium": (0.25, 0.75),
    "binary-hard": (0.0, 0.5),
}
"""Success rates, bounds included, that the binary shapes keep; all of them drop 0."""


class DifficultyWeight(CurriculumSettings):
    """The draws of another curriculum, each group weighted by its own success rate."""

    kind: Literal["difficulty-weight"] = "difficulty-weight"
    shape: Shape = "medium"
    """Which groups count most: those mostly solved (``easy``), half solved (``medium``) or mostly failed (``hard``);
    the binary shapes have weights 0 and 1 only."""
    all_wrong: float = Field(0.25, ge=0, le=1)
    """Weight of a group without a correct answer under ``hard`` (no unit). With correctness as the only reward such
    a group has zero advantage; with a length reward it has not."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return DifficultyWeighted(self, self.draws.build(source, seed=seed, policy=policy))


class DifficultyWeighted(Around):
    """Has no state of its own: a weight depends on the group's rollouts alone."""

    def __init__(self, settings: DifficultyWeight, inner: Curriculum) -> None:
        super().__init__(inner)
        self.settings = settings
        self.mean = 1.0

    def weight(self, tree: Tree) -> float:
        # Where no grader judges correctness there is no success rate, and the group keeps its inner weight.
        solved = tree.solved
        own = (
            1.0 if solved is None else difficulty_weight(solved, self.settings.shape, all_wrong=self.settings.all_wrong)
        )
        return own * self.inner.weight(tree)

    def observe(self, trees: Sequence[Tree]) -> None:
        self.mean = sum(map(self.weight, trees)) / len(trees) if trees else 1.0
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        return {"weight/mean": self.mean, **self.inner.metrics()}


def difficulty_weight(solved: float, shape: Shape, *, all_wrong: float = 0.25) -> float:
    """Factor on a group's advantages.

        c(p) = cos(pi (p - 1/2))        1 at p = 1/2, 0 at p = 0 and p = 1
                    p = 0        0 < p <= 1/2    1/2 < p <= 1
        easy        0            c(p)            1
        medium      0            c(p)            c(p)
        hard        all_wrong    1               c(p)

        binary-easy    1 for 1/2 <= p <= 1, binary-medium for 1/4 <= p <= 3/4, binary-hard for 0 < p <= 1/2, else 0

    Args:
        solved: p, the group's accuracy, whatever else is rewarded.
        shape: as above.
        all_wrong: weight at p = 0 under ``hard``, without unit.
    Returns:
        Weight without unit, in 0 .. 1.
    Raises:
        ValueError: solved is not in 0 .. 1.
    Source:
        VL-Cogito, arXiv:2507.22607: its released code, reward and advantage sections of verl/trainer/ray_trainer.py,
        which calls the shapes s_3, s_2, s_1 and h_3, h_2, h_1 in this order; 0.25 is in examples/config.yaml.
    """
    if not 0 <= solved <= 1:
        raise ValueError(f"solved: got {solved}; allowed: a share, 0 to 1")
    if shape in KEPT:
        low, high = KEPT[shape]
        return float(solved > 0 and low <= solved <= high)
    if solved == 0:
        return all_wrong if shape == "hard" else 0.0
    flat = shape == "easy" if solved > 0.5 else shape == "hard"
    # At p = 1 the cosine of pi / 2 is 6e-17 in floating point.
    return 1.0 if flat else max(0.0, round(math.cos(math.pi * (solved - 0.5)), 12))
