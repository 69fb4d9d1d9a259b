"""HAPO's credit: the group's mean and deviation over tokens, and each token's place in the step's range of entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import (
    BaseCredit,
    CreditWithKL,
    above_zero,
    by_group,
    group_centred,
    row_reward,
    spread,
)
from lyceum.credit.group import group_relative
from lyceum.papers.hapo._entropy import EntropyRange
from lyceum.utils.lazy_imports import Tensor, torch

RELATIVE_ENTROPY = "relative_entropy"


class TokenLevelGroup(CreditWithKL):
    """Each row against its group's mean over tokens, in which a long row counts more; for objective ``hapo``."""

    reads_steps: ClassVar[bool] = False
    requires: ClassVar = ("company",)
    gives: ClassVar = ("relative-entropy",)

    kind: Literal["hapo"] = "hapo"
    pivot: float = Field(default=0.8, ge=0, le=1)
    """Quantile of the step's log-entropies above which a token's is high (0 to 1); 0.8 in the authors' scripts."""
    eps: float = Field(default=1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"old_entropy"}

    def build(self) -> Credit:
        return HAPOCredit(self.needs, self)


@dataclass
class HAPOCredit(BaseCredit):
    needs: frozenset[str]
    settings: TokenLevelGroup

    def __call__(self, forest: Forest) -> Credited:
        rows = forest.rows()
        reward = row_reward(forest, rows, self.settings.kl_in_reward)
        mask = forest.trainable(rows)
        advantage = token_level_advantage(reward, mask.sum(1), forest.group, eps=self.settings.eps)
        entropy = relative_entropy(rows.gather(forest.columns["old_entropy"]), mask, self.settings.pivot)
        return Credited(spread(advantage, forest, rows), columns={RELATIVE_ENTROPY: entropy})


LARGEST = 5.0
"""A group with an advantage of this magnitude gets the usual group-relative ones instead, as in the authors' code:
where one short row differs from long ones, the deviation over tokens is near 0."""


def token_level_advantage(
    reward: Float[Tensor, " R"], length: Int[Tensor, " R"], group: Int[Tensor, " R"], *, eps: float = 1e-6
) -> Float[Tensor, " R"]:
    """Each row's reward against its group's mean over tokens.

        A_i = (r_i - m) / (s + eps)      m = sum_i n_i r_i / sum_i n_i,  s^2 = sum_i n_i (r_i - m)^2 / sum_i n_i

    Args:
        reward: outcome of each row, in the verifier's unit.
        length: n_i, trained tokens of each row.
        group: group of each row.
        eps: added to s, in the unit of reward.
    Returns:
        Without unit; the advantages of a group's tokens sum to 0. Those of GRPO (s over rows, divided by n - 1) in a
        group where one would be 5 or more.
    Source:
        HAPO, arXiv:2509.16591 (token-level group average); starriver030515/HAPO, ``compute_hapo_outcome_advantage``.
    """
    tokens = by_group(length.to(reward), group, "sum").clamp(min=1)
    above = group_centred(reward, group)  # exactly 0 where all are equal
    centred = above - by_group(above * length, group, "sum") / tokens
    deviation = (by_group(centred.square() * length, group, "sum") / tokens).sqrt()
    advantage = centred / above_zero(deviation + eps)
    large = by_group(advantage.abs(), group, "amax") >= LARGEST
    return torch.where(large, group_relative(reward, group, ddof=1, eps=eps), advantage)


def relative_entropy(entropy: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"], pivot: float) -> Float[Tensor, "R L"]:
    """Where each token's entropy lies between the step's lowest, a quantile and the highest (``EntropyRange``).

    Args:
        entropy: nats.
        mask: the step's trained tokens.
        pivot: quantile of the log-entropies that becomes 0.
    Returns:
        -1 to 1; 0 outside the mask.
    """
    if not bool(mask.any()):
        return torch.zeros_like(entropy)
    return torch.where(mask, EntropyRange.of(entropy[mask], pivot).relative(entropy), 0)
