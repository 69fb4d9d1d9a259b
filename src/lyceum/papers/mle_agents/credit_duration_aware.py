"""Advantages weighted by how long an action ran, so that quick ones, which come back more often, do not count for more.

Source: arXiv:2509.01684, duration-aware gradient updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, CreditWithKL, above_zero, by_group, row_reward, spread
from lyceum.utils.errors import RunError
from lyceum.utils.lazy_imports import Tensor


class DurationAware(CreditWithKL):
    """Each row against the mean of its group over time, times its duration over the step's mean duration."""

    requires: ClassVar = ("company",)

    kind: Literal["duration-aware"] = "duration-aware"
    duration: str = "progress-marks/duration"
    """Part of the reward that says how long a row's action ran."""
    exponent: float = Field(default=1.0, ge=0, le=4)
    """Power of the duration that is the weight (no unit): 1 as in the paper, 0 weights nothing."""
    eps: float = Field(default=1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    def build(self) -> Credit:
        return DurationAwareCredit(self.needs, self)


@dataclass
class DurationAwareCredit(BaseCredit):
    needs: frozenset[str]
    settings: DurationAware

    def __call__(self, forest: Forest) -> Credited:
        of, rows = self.settings, forest.rows()
        duration = forest.parts.get(of.duration, forest.reward.new_full((forest.n_rows,), nan))
        if bool(duration.isnan().any()):
            raise RunError(
                f"credit.duration: no part {of.duration!r} of every row; allowed: one of {', '.join(forest.parts)}"
            )
        weight = weights(duration, exponent=of.exponent)
        reward = row_reward(forest, rows, of.kl_in_reward)
        advantage = weighted_relative(reward, weight, forest.group, eps=of.eps)
        metrics: dict[str, float] = {}
        if forest.n_rows:
            metrics = {"durations/mean": float(duration.mean()), "durations/heaviest": float(weight.max())}
        return Credited(spread(advantage, forest, rows), metrics=metrics)


def weights(duration: Float[Tensor, " R"], *, exponent: float) -> Float[Tensor, " R"]:
    """w_i = d_i^exponent / mean(d^exponent): the batch's mean weight is 1.

    Args:
        duration: of each row's action, at least 0, in seconds.
    Returns:
        Without unit.
    """
    power = duration**exponent
    return power / above_zero(power.mean())


def weighted_relative(
    reward: Float[Tensor, " R"], weight: Float[Tensor, " R"], group: Int[Tensor, " R"], *, eps: float
) -> Float[Tensor, " R"]:
    """Each row's weight times its reward against its group, whose mean and deviation have the same weights.

        A_i = w_i (r_i - m_g) / (s_g + eps)    m_g = sum_g w r / sum_g w    s_g^2 = sum_g w (r - m_g)^2 / sum_g w

    Where an action of duration d comes back in proportion to 1 / d, sums over rows with weights d are those of samples
    that all take the same time, up to a factor.

    Returns:
        Without unit; exactly 0 where a group's rewards are equal. All weights equal: group-relative advantages.
    """
    above = reward - by_group(reward, group, "amin")
    total = above_zero(by_group(weight, group, "sum"))
    centred = above - by_group(weight * above, group, "sum") / total
    variance = by_group(weight * centred.square(), group, "sum") / total
    return weight * centred / (variance.sqrt() + eps)
