"""How many tasks a wave of dynamic sampling draws for the groups that a step still lacks, and which groups it keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from lyceum.core.component import Component, require_keys
from lyceum.core.tree import Tree


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

    def finish(self, kept: list[Tree], size: int) -> tuple[list[Tree], list[Tree]]:
        """End a step of this size: the groups that it trains on, in the order drawn, and the surplus."""
        settings = self.settings
        if settings is None:
            return kept, []
        if self._sampled:
            share = self._kept / self._sampled
            self.least = min(self.least, share)
            self.expansion = average(self.expansion, min(inverse(share), settings.most), settings.decay)
        first = sorted(range(len(kept)), key=lambda i: imbalance(kept[i]) if settings.by == "average" else i)
        chosen = set(first[:size])
        surplus = [tree for i, tree in enumerate(kept) if i not in chosen]
        self.metrics = {
            "oversample/tasks": float(self._sampled),
            "oversample/kept": float(self._kept),
            "oversample/surplus": float(len(surplus)),
        }
        self._begin()
        return [tree for i, tree in enumerate(kept) if i in chosen], surplus

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
