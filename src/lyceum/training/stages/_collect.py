"""Which finished groups a step trains on, and how many tasks it draws for those that it still lacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator

from lyceum.core.component import Component, require_keys
from lyceum.core.group import Group
from lyceum.core.tree import Tree
from lyceum.training.stages._metrics import has_gradient


class GroupFilter(Component):
    """Which finished groups are trained on."""

    keep: Literal["all", "with-gradient", "partly-solved", "solved-between"] = "all"
    """``with-gradient`` drops groups whose rewards are all equal, ``partly-solved`` those whose answers are all
    correct or all incorrect (dynamic sampling, DAPO, arXiv:2503.14476, equation 11), ``solved-between`` those whose
    accuracy is outside the bounds (balanced filtering, arXiv:2504.03380). An online stage replaces dropped groups by
    newly sampled ones, one for one unless `oversample` says more; an offline one does not."""
    solved_low: float | None = Field(default=None, ge=0, le=1)
    """Lowest accuracy of a group that ``solved-between`` keeps, inclusive; null sets no bound (0 to 1)."""
    solved_high: float | None = Field(default=None, ge=0, le=1)
    """Highest accuracy of a group that ``solved-between`` keeps, inclusive; null sets no bound (0 to 1)."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> GroupFilter:
        bounded = self.solved_low is not None or self.solved_high is not None
        if bounded != (self.keep == "solved-between"):
            raise ValueError(
                f"solved_low and solved_high: got {self.solved_low} and {self.solved_high} with keep {self.keep!r}; "
                "allowed: null with every other keep, at least one of them with 'solved-between'"
            )
        if self.solved_low is not None and self.solved_high is not None and self.solved_low > self.solved_high:
            raise ValueError(
                f"solved_low: got {self.solved_low}, but solved_high is {self.solved_high}; allowed: at most that"
            )
        return self

    def keeps(self, tree: Tree) -> bool:
        """Whether a finished group is trained on."""
        return KEPT[self.keep](tree, self)

    def unjudged(self, dropped: Sequence[Tree]) -> int:
        """Number of groups dropped only because no grader says which of their answers are correct."""
        by_verdict = self.keep in ("partly-solved", "solved-between")
        return sum(by_verdict and tree.solved is None and has_gradient(tree) for tree in dropped)


class Oversample(Component):
    """Draw more tasks than groups are missing, since some will be dropped."""

    by: Literal["least", "average"] = "least"
    """From which share of kept groups the factor follows: ``least``, the smallest of an earlier step or of a wave of
    this one (adaptive DAPO, CodeV-R1, arXiv:2505.24183): groups beyond a step's size are dropped, the last ones first.
    ``average``, 1 / share as an exponential moving average over steps (RLCS, GLM-4.1V-Thinking, arXiv:2507.01006,
    section 5.3.1): the groups nearest to half solved are kept."""
    decay: float = Field(default=0.8, ge=0, lt=1)
    """Share of the moving average kept at each step under ``average`` (no unit)."""
    most: float = Field(default=4.0, ge=1, le=100)
    """Maximum tasks drawn per missing group."""


class Collect(GroupFilter):
    """Which finished groups are trained on, and how long others are sampled in the place of those dropped."""

    max_waves: int = Field(default=4, ge=1)
    """Maximum sampling waves per step, after which it trains on the groups it has."""
    oversample: Oversample | None = None
    """How many more tasks than missing groups a wave samples; none by default."""

    @model_validator(mode="after")
    def _something_is_dropped(self) -> Collect:
        if self.oversample is not None and self.keep == "all":
            raise ValueError("oversample: got it with keep 'all', which drops nothing; allowed: another keep, or null")
        return self


def is_partly_solved(tree: Tree) -> bool:
    """Whether some of a group's answers are correct and some are not, regardless of reward shaping."""
    return tree.solved is not None and 0 < tree.solved < 1


def is_solved_between(tree: Tree, low: float | None, high: float | None) -> bool:
    """Whether a group's accuracy lies within the bounds, inclusive."""
    if tree.solved is None:
        return False
    return (low is None or low <= tree.solved) and (high is None or tree.solved <= high)


KEPT: Mapping[str, Callable[[Tree, GroupFilter], bool]] = {
    "all": lambda tree, _: True,
    "with-gradient": lambda tree, _: has_gradient(tree),
    "partly-solved": lambda tree, _: is_partly_solved(tree),
    "solved-between": lambda tree, bounds: is_solved_between(tree, bounds.solved_low, bounds.solved_high),
}


class Oversampling:
    """Its state: the smallest share of kept groups, and the moving average of the inverse share.

    Source: of ``least``, CodeV-R1's released code (verl/trainer/ppo/ray_trainer.py, ``dapo_accelerate``). There no
    factor has a bound, and a step is sampled until it is full.
    """

    def __init__(self, settings: Oversample | None) -> None:
        self.settings = settings
        self.least = 1.0
        self.expansion = 1.0
        self.metrics: dict[str, float] = {}
        """Of the last step; none without settings."""
        self._begin()

    def _begin(self) -> None:
        self._kept = self._sampled = 0
        self._least_wave = 1.0

    def tasks(self, missing: int) -> int:
        """Tasks to draw for so many groups: exactly as many without settings."""
        settings = self.settings
        if settings is None:
            return missing
        share = min(self.least, self._least_wave)
        factor = self.expansion if settings.by == "average" else inverse(share)
        # 3 / 0.3 is above 10 in floating point.
        return math.ceil(round(missing * min(factor, settings.most), 6))

    def count(self, *, kept: int, sampled: int) -> None:
        """A wave's groups."""
        self._kept, self._sampled = self._kept + kept, self._sampled + sampled
        if sampled:
            self._least_wave = min(self._least_wave, kept / sampled)

    def finish(self, kept: list[Group], size: int) -> tuple[list[Group], list[Group]]:
        """End a step of this size: the groups that it trains on, in the order drawn, and the surplus, dropped."""
        settings = self.settings
        if settings is None:
            return kept, []
        if self._sampled:
            share = self._kept / self._sampled
            self.least = min(self.least, share)
            self.expansion = average(self.expansion, min(inverse(share), settings.most), settings.decay)
        first = sorted(range(len(kept)), key=lambda i: imbalance(kept[i].tree) if settings.by == "average" else i)
        chosen = set(first[:size])
        surplus = [replace(group, dropped=True) for i, group in enumerate(kept) if i not in chosen]
        self.metrics = {
            "oversample/tasks": float(self._sampled),
            "oversample/kept": float(self._kept),
            "oversample/surplus": float(len(surplus)),
        }
        self._begin()
        return [group for i, group in enumerate(kept) if i in chosen], surplus

    def state_dict(self) -> dict[str, Any]:
        return {"least": self.least, "expansion": self.expansion}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.oversampling", given=state, needed=self.state_dict())
        self.least, self.expansion = float(state["least"]), float(state["expansion"])


def inverse(share: float) -> float:
    """1 / share; infinite for 0."""
    return 1 / share if share else math.inf


def average(before: float, now: float, decay: float) -> float:
    """decay * before + (1 - decay) * now."""
    return decay * before + (1 - decay) * now


def imbalance(tree: Tree) -> float:
    """How far a group's accuracy is from one half: 0 .. 1/2; 1/2 where no grader judges."""
    return 0.5 if tree.solved is None else abs(tree.solved - 0.5)
