"""CANON: a group is split in two by entropy or length; rows are compared with the other half, and within their own."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credited
from lyceum.credit.base import ForestCreditSettings, group_centred, row_reward, spread
from lyceum.utils.lazy_imports import Tensor, torch


class Canon(ForestCreditSettings):
    """Each row against the half of its group that differs in entropy or length, blended with its own half.

    Which half pays off follows from the outcomes of each group: neither direction is preferred, unless ``favour`` says
    so.
    """

    kind: Literal["canon"] = "canon"
    by: Literal["entropy", "length"] = "entropy"
    """What a group is split by, at its median: the mean entropy of a row's tokens, or their number."""
    between: float = Field(1.0, ge=0, le=1)
    """Weight of the comparison with the other half (the paper's mu); the rest is that with the own half. 1: the other
    half alone, 0: the own half alone."""
    follows: Literal["nothing", "accuracy", "errors"] = "nothing"
    """What that weight is multiplied by: nothing, the step's mean outcome (0 to 1), or 1 minus that."""
    favour: float = Field(1.0, ge=0, le=2)
    """Factor (the paper's alpha) on the outcomes of the longer rows, or of those of lower entropy, where halves are
    compared: below 1 shorter rows, or rows of higher entropy, are preferred; 1 prefers neither."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"old_entropy"} if self.by == "entropy" else set())

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        written = forest.trainable(rows)
        reward, measure = row_reward(forest, rows, self.kl_in_reward), written.sum(1).to(forest.reward)
        if self.by == "entropy":
            entropy = rows.gather(forest.columns["old_entropy"]).masked_fill(~written, 0)
            measure = entropy.sum(1) / measure.clamp(min=1)
        high = upper_half(measure, forest.group)
        accuracy = float(reward.mean().clamp(0, 1)) if len(reward) else 0.0
        between = self.between * {"nothing": 1.0, "accuracy": accuracy, "errors": 1 - accuracy}[self.follows]
        advantage = conditional_advantage(
            reward,
            forest.group,
            high,
            between=between,
            factor=torch.where(high == (self.by == "length"), self.favour, 1.0).to(reward),
        )
        own, other = half_means(group_centred(reward, forest.group), forest.group, high)
        lead = torch.where(high, own - other, other - own)  # of each row's group; nan in a group of one
        metrics = {
            "between": between,
            "high_ahead": float(len(forest.group[lead > 0].unique())),
            "low_ahead": float(len(forest.group[lead < 0].unique())),
        }
        return Credited(spread(advantage, forest, rows), metrics=metrics)


def upper_half(measure: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> Bool[Tensor, " R"]:
    """True for the rows of a group from its median on: the n - n // 2 of the highest measure; ties in row order."""
    order = torch.argsort(measure, stable=True)
    order = order[torch.argsort(group[order], stable=True)]  # by group, then by measure
    size = torch.bincount(group)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order)) - (size.cumsum(0) - size)[group[order]]
    return place >= size[group] // 2


def half_means(
    value: Float[Tensor, " R"], group: Int[Tensor, " R"], high: Bool[Tensor, " R"]
) -> tuple[Float[Tensor, " R"], Float[Tensor, " R"]]:
    """Mean of each row's own half and of the other half of its group; nan for a half without rows."""
    half = 2 * group + high
    mean = value.new_full((2 * int(group.max()) + 2 if len(group) else 0,), float("nan"))
    mean = mean.scatter_reduce(0, half, value, "mean", include_self=False)
    return mean[half], mean[half ^ 1]


def conditional_advantage(
    reward: Float[Tensor, " R"],
    group: Int[Tensor, " R"],
    high: Bool[Tensor, " R"],
    *,
    between: float = 1.0,
    factor: Float[Tensor, " R"],
) -> Float[Tensor, " R"]:
    """Each row's reward against the other half of its group, and against its own.

        A_i = mu (c_i r_i - mean_{j in the other half} c_j r_j) + (1 - mu) (r_i - mean_{j in the own half} r_j)

    Args:
        reward: outcome of each row, in the verifier's unit.
        group: group of each row, numbered from 0; numbers may be missing.
        high: whether a row is in the upper half of its group.
        between: mu, 0 to 1.
        factor: c, of each row: alpha in one half, 1 in the other.
    Returns:
        In the unit of reward; 0 in a group of one, and exactly 0 where a group's rewards are equal and c is 1.
    Source:
        CANON, arXiv:2509.23962; biuboomc/CANON, ``compute_dr_entropy_per_token_group_outcome_advantage`` and
        ``compute_dr_length_on_mean_group_outcome_advantage``, which divide by a constant in addition (the longest
        completion, here ``objective.constant``).
    """
    # From the group's minimum first, as in group_centred: means of equal rewards are then exact.
    centred = group_centred(reward, group)
    own, other = half_means(centred, group, high)
    change = (factor - 1) * reward
    _, changed = half_means(change, group, high)
    advantage = between * ((centred - other) + (change - changed)) + (1 - between) * (centred - own)
    return torch.where(other.isnan(), 0, advantage)
