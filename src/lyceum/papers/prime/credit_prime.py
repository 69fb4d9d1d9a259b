"""PRIME: leave-one-out advantages of the outcome, plus returns of process rewards against the other rows' mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, CreditWithKL, by_group, lay, row_reward, whiten
from lyceum.credit.gae import process_reward
from lyceum.credit.leave_one_out import leave_one_out
from lyceum.credit.shares import token_shares
from lyceum.utils.lazy_imports import Tensor, torch


class Prime(CreditWithKL):
    """Process rewards, of tokens or of steps, and the outcome, each against the other rows of the task.

    Source: PRIME, arXiv:2502.01456; its released code's compute_rloo_returns.
    """

    requires: ClassVar = ("company",)

    kind: Literal["prime"] = "prime"
    process_coefficient: float = 1.0
    """Weight of the process rewards beside the outcome; 0 is leave-one-out."""
    normalise: Literal["largest-return", "none"] = "largest-return"
    """Divisor of the process rewards: the largest magnitude that what a row earns from some token on has in the step,
    so that their scale, which an implicit model's log-ratio does not settle and which grows as it learns, cannot
    outweigh the outcome; ``none``: their model's own scale."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount of process rewards per token (no unit)."""
    whiten: bool = True
    """Normalise the step's advantages to mean 0 and standard deviation 1, as the released code does."""

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().sources(outcome), *(("process",) if self.process_coefficient else ()))

    def build(self) -> Credit:
        return PrimeCredit(self.needs, self)


@dataclass
class PrimeCredit(BaseCredit):
    needs: frozenset[str]
    settings: Prime

    def __call__(self, forest: Forest) -> Credited:
        rows, of = forest.rows(), self.settings
        mask = forest.trainable(rows)
        outcome = leave_one_out(row_reward(forest, rows, of.kl_in_reward), forest.group)
        reward = process_reward(forest, rows)
        paid = (reward != 0) & mask
        if of.normalise == "largest-return":
            reward = by_largest_return(reward, mask)
        process = returns(against_others(reward, judged_tokens(forest, mask), forest.group), mask, gamma=of.gamma)
        weighted = of.process_coefficient * process
        advantage = (outcome[:, None] + weighted) * mask
        if of.whiten:
            advantage = whiten(advantage, mask)
        share = float(paid.sum()) / max(1, int(mask.sum()))
        metrics = {"tokens_with_process_reward": share, "process/spread": _spread(process[mask])}
        if of.process_coefficient:
            metrics |= token_shares({"outcome": outcome[:, None], "process": weighted}, mask)
        return Credited(lay(advantage, forest, rows), metrics=metrics)


def _spread(value: Float[Tensor, " k"]) -> float:
    return float(value.std(correction=0)) if len(value) else 0.0


def judged_tokens(forest: Forest, mask: Bool[Tensor, "R L"]) -> Bool[Tensor, "R L"]:
    """The last token that the policy wrote in each judged segment."""
    ones = torch.where(forest.segment_reward.isnan(), forest.segment_reward, 1.0)
    return (process_reward(replace(forest, segment_reward=ones), forest.rows()) > 0) & mask


def by_largest_return(
    reward: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"], *, eps: float = 1e-6
) -> Float[Tensor, "R L"]:
    """Process rewards over the step's largest undiscounted return.

        r_(i, t) / (max_(j, s) |sum_{u >= s} r_(j, u)| + eps)

    Args:
        reward: of each token, in its model's unit.
        mask: tokens that the policy wrote.
        eps: in the unit of reward.
    Returns:
        Without unit: no return is beyond -1 or 1 before rows are compared.
    Source:
        PRIME, arXiv:2502.01456; PRIME-RL/PRIME, dp_prime.py (``prime_norm: batch_norm``), over the rows of one worker.
    """
    largest = returns(reward, mask, gamma=1.0).abs().max() if reward.numel() else 0.0
    return reward / (largest + eps)


def against_others(
    reward: Float[Tensor, "R L"], judged: Bool[Tensor, "R L"], group: Int[Tensor, " R"]
) -> Float[Tensor, "R L"]:
    """Each process reward minus the mean over the other rows of their mean process rewards; 0 where none is.

        r_(i, t) - 1 / (n - 1) sum_{j != i} m_j        m_j: mean of the process rewards of row j

    Args:
        reward: process reward of each token, in its model's unit.
        judged: where there is one.
        group: group of each row. A row alone in its group has no others: 0 is subtracted.
    Source:
        PRIME, arXiv:2502.01456. The released code multiplies r by n / (n - 1) and lets j = i into the sum instead.
    """
    own = (reward * judged).sum(1) / judged.sum(1).clamp(min=1)
    count = by_group(own.new_ones(len(own)), group, "sum")
    others = (by_group(own, group, "sum") - own) / (count - 1).clamp(min=1)
    return (reward - others[:, None]) * judged


def returns(reward: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"], *, gamma: float) -> Float[Tensor, "R L"]:
    """G_t = r_t + gamma G_{t+1} over the tokens of the mask; 0 elsewhere."""
    found, after = torch.zeros_like(reward), reward.new_zeros(len(reward))
    for t in reversed(range(reward.shape[1])):
        after = torch.where(mask[:, t], reward[:, t] + gamma * after, after)
        found[:, t] = torch.where(mask[:, t], after, 0)
    return found
