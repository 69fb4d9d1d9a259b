"""REINFORCE++: no critic, a per-token KL penalty, advantages normalised over the whole step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.needs import Need
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import (
    BaseCredit,
    CreditWithKL,
    group_centred,
    kl_cost,
    last_token,
    lay,
    whiten,
)
from lyceum.credit.gae import generalised_advantage, shares_of_rewards
from lyceum.utils.lazy_imports import Tensor, torch


class ReinforcePlusPlus(CreditWithKL):
    """The reward-to-go, whitened over all tokens of the step."""

    requires: ClassVar = (Need("company", when=lambda own: own.baseline == "group"),)

    kind: Literal["reinforce-plus-plus"] = "reinforce-plus-plus"
    baseline: Literal["none", "group"] = "none"
    """``none``: the plain outcome, so that one sample per task is enough; ``group``: minus the mean of the task's rows,
    the paper's variant "w/ baseline"."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount of the reward per token (no unit)."""
    outliers: float | None = Field(None, gt=0)
    """Advantages farther from 0 than this many standard deviations of the step become 0: a step of nearly equal rewards
    makes the few others huge. 3 in StableReinforce (R1-Reward, arXiv:2505.02835, and the authors' code,
    openrlhf/trainer/ppo_utils/replay_buffer.py); null: none do."""

    def build(self) -> Credit:
        return ReinforcePlusPlusCredit(self.needs, self)


@dataclass
class ReinforcePlusPlusCredit(BaseCredit):
    needs: frozenset[str]
    settings: ReinforcePlusPlus

    def __call__(self, forest: Forest) -> Credited:
        rows = forest.rows()
        mask = forest.trainable(rows)
        centred = self.settings.baseline == "group"
        outcome = group_centred(forest.reward, forest.group) if centred else forest.reward
        cost = kl_cost(forest, rows, self.settings.kl_in_reward)
        reward = outcome[:, None] * last_token(mask) - cost
        advantage = globally_normalised(reward, mask, gamma=self.settings.gamma)
        metrics: dict[str, float] = {}
        if self.settings.kl_in_reward.coefficient:
            metrics |= shares_of_rewards(reward, cost, None, mask, gamma=self.settings.gamma, lam=1.0)
        if self.settings.outliers is None:
            return Credited(lay(advantage, forest, rows), metrics=metrics)
        kept = advantage.abs() <= self.settings.outliers
        metrics |= {"outliers/share": 1 - float(kept[mask].float().mean()) if mask.any() else 0.0}
        return Credited(lay(advantage.masked_fill(~kept, 0), forest, rows), metrics=metrics)


def globally_normalised(
    reward: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"], *, gamma: float = 1.0
) -> Float[Tensor, "R L"]:
    """The discounted reward from each token on, whitened over every token of the step.

        R_t = sum_{s >= t} gamma^(s - t) r_s        A_t = (R_t - mean) / std        over all tokens of all rows

    Args:
        reward: earned by each token, in the verifier's unit: the outcome on the last, minus the KL cost of each.
        mask: tokens that the policy wrote.
        gamma: discount per token.
    Returns:
        Advantage without unit, 0 outside the mask; exactly 0 everywhere where all R_t are equal.
    Source:
        REINFORCE++, arXiv:2501.03262, section 3; without a critic it is GAE with V = 0 and lambda = 1.
    """
    return whiten(generalised_advantage(reward, torch.zeros_like(reward), mask, gamma=gamma, lam=1.0), mask)
