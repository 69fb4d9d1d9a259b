"""SPEAR's credit: recorded successes against a median of recent rewards, with a weight that grows over training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any, ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import (
    CreditWithKL,
    above_zero,
    by_group,
    group_centred,
    recorded_rows,
    row_reward,
    spread,
)
from lyceum.credit.group import group_relative
from lyceum.utils.lazy_imports import Tensor, torch


class SelfImitation(CreditWithKL):
    """Sampled rows against their group; recorded ones against the median of recent groups' mean rewards, and only where
    they are better than it, for a stage with ``replay``.

    Source:
        SPEAR, arXiv:2509.22601 (advantage recalibration, curriculum-scheduled self-imitation), and the authors' code
        (``TrajectoryBufferBatch`` in ray_trainer_hybrid.py, ``update_policy`` in dp_actor.py).
    """

    reads_steps: ClassVar[bool] = False
    requires: ClassVar = ("company", "replay")

    kind: Literal["self-imitation"] = "self-imitation"
    scale: Literal["none", "std"] = "none"
    """Divisor of the difference: nothing, or a standard deviation, the group's and for recorded rows the median one."""
    eps: float = Field(default=1e-6, gt=0)
    """Added to a standard deviation, in the reward's unit."""
    baseline_groups: int = Field(default=10_240, ge=1)
    """Sampled groups, the newest, whose mean rewards the median is of."""
    coefficient: float = Field(default=1.0, ge=0)
    """Weight of recorded rows after the warm-up (no unit)."""
    warm_up_steps: int = Field(default=200, ge=0)
    """Steps over which that weight rises from 0, along half a cosine; 0: at once."""

    def build(self) -> Credit:
        return SelfImitationCredit(self)


class SelfImitationCredit:
    """The credit, with the mean rewards and standard deviations of recent groups."""

    def __init__(self, settings: SelfImitation) -> None:
        self.settings = settings
        self.needs: frozenset[str] = settings.needs
        self.measures: frozenset[str] = frozenset()
        self.means: list[float] = []
        self.deviations: list[float] = []
        self.steps = 0

    def __call__(self, forest: Forest) -> Credited:
        settings, rows = self.settings, forest.rows()
        reward = row_reward(forest, rows, settings.kl_in_reward)
        advantage = group_relative(reward, forest.group, scale=settings.scale, eps=settings.eps)
        recorded = recorded_rows(forest)
        weight = imitation_weight(self.steps, settings.warm_up_steps, settings.coefficient)
        if not bool(recorded.any()) or not self.means:
            return Credited(spread(advantage, forest, rows), metrics={"imitation": weight})
        baseline = median(self.means)
        divisor = median(self.deviations) + settings.eps if settings.scale == "std" else 1.0
        again = recalibrated(reward, advantage, baseline, divisor)
        advantage = torch.where(recorded, weight * again, advantage)
        metrics = {
            "imitation": weight,
            "baseline": baseline,
            "recorded": int(recorded.sum()),
            "imitated": int((recorded & (again > 0)).sum()),
        }
        return Credited(spread(advantage, forest, rows), metrics=metrics)

    def observe(self, forest: Forest, metrics: Mapping[str, float]) -> None:
        sampled = ~recorded_rows(forest)
        means, deviations = group_statistics(forest.reward[sampled], forest.group[sampled])
        most = self.settings.baseline_groups
        self.means = [*self.means, *means][-most:]
        self.deviations = [*self.deviations, *deviations][-most:]
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"means": list(self.means), "deviations": list(self.deviations), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("credit.self-imitation", given=state, needed=self.state_dict())
        self.means, self.deviations = list(state["means"]), list(state["deviations"])
        self.steps = state["steps"]


def imitation_weight(step: int, warm_up: int, coefficient: float = 1.0) -> float:
    """Weight of the self-imitation loss.

        coefficient * (1 - cos(pi t / T)) / 2        t < T; the coefficient from T on

    Args:
        step: t, steps of the stage that are done.
        warm_up: T.
    Source:
        SPEAR, arXiv:2509.22601; ``update_policy`` in the authors' dp_actor.py.
    """
    return coefficient * (1 - math.cos(math.pi * min(1.0, step / warm_up))) / 2 if warm_up else coefficient


def recalibrated(
    reward: Float[Tensor, " R"], advantage: Float[Tensor, " R"], baseline: float, divisor: float = 1.0
) -> Float[Tensor, " R"]:
    """Advantages of recorded rows as the policy is now: how much better they are than what it earns lately.

        A = (r - median) / divisor        where that is positive, and the row was better than its own group; else 0

    Args:
        reward: outcome of each row, in the verifier's unit.
        advantage: within its own group, as when it was sampled.
        baseline: median of recent groups' mean rewards.
        divisor: in the unit of reward.
    Source:
        SPEAR, arXiv:2509.22601 (advantage recalibration); ``prepare_for_selection`` in the authors' code.
    """
    again = (reward - baseline) / divisor
    return torch.where((again > 0) & (advantage > 0), again, 0)


def group_statistics(reward: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation (by n) of each group's rewards, in the order of its first row."""
    if not len(reward):
        return [], []
    centred = group_centred(reward, group)
    count = by_group(torch.ones_like(reward), group, "sum")
    mean = by_group(reward, group, "sum") / above_zero(count)
    deviation = (by_group(centred.square(), group, "sum") / above_zero(count)).sqrt()
    first = {number: row for row, number in reversed(list(enumerate(group.tolist())))}
    rows = sorted(first.values())
    return mean[rows].tolist(), deviation[rows].tolist()
