"""IGPO: rewards of turns and of the outcome, each against its group's, added up from each turn on."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credited
from lyceum.credit.base import ForestCreditSettings, last_token, lay, row_reward
from lyceum.credit.gae import generalised_advantage, judged_ends
from lyceum.credit.group import group_relative
from lyceum.credit.shares import token_shares
from lyceum.utils.lazy_imports import Tensor, torch


class TurnReturns(ForestCreditSettings):
    """What a turn and those after it earn, in standard deviations of the group's rewards.

    Judged steps are turns: those that the reward ``answer-gain`` judges, or others. Where all outcomes of a group are
    equal, its turns still differ.
    """

    kind: Literal["igpo"] = "igpo"
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount per turn (no unit)."""
    normalise: Literal["joint", "separate"] = "joint"
    """Whether turns and outcomes of a group have one mean and standard deviation, or two."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().sources(outcome), "process")

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        mask = forest.trainable(rows)
        row, at, gain = judged_ends(forest, rows)
        ends = torch.zeros_like(mask)
        ends[row, at] = True
        outcome = row_reward(forest, rows, self.kl_in_reward)
        turn = gain.new_zeros(mask.shape).index_put((row, at), gain, accumulate=True)[ends].to(outcome)
        group = forest.group[:, None].expand(ends.shape)[ends]
        turn, outcome = normalised(turn, group, outcome, forest.group, joint=self.normalise == "joint", eps=self.eps)
        process, end = turn.new_zeros(ends.shape).masked_scatter(ends, turn), outcome[:, None] * last_token(mask)
        laid = process + end
        advantage = turn_returns(laid, ends, mask, self.gamma)
        of_turn = (laid != 0) & ends
        metrics = {"turns": float(ends.sum()), "turns_with_gain": float(of_turn.sum())}
        of_source = {
            name: turn_returns(earned, ends, mask, self.gamma)
            for name, earned in (("outcome", end), ("process", process))
        }
        return Credited(lay(advantage, forest, rows), metrics=metrics | token_shares(of_source, mask))


def normalised(
    turn: Float[Tensor, " U"],
    group_of_turn: Int[Tensor, " U"],
    outcome: Float[Tensor, " R"],
    group: Int[Tensor, " R"],
    *,
    joint: bool,
    eps: float = 1e-6,
) -> tuple[Float[Tensor, " U"], Float[Tensor, " R"]]:
    """Rewards of turns and of rows against their group's.

        (r - mean_g) / (std_g + eps)        over the turns and outcomes of group g, or over each kind by itself

    Args:
        turn, outcome: in the unit of reward.
    Returns:
        Without unit; exactly 0 where all are equal.
    Source:
        IGPO, arXiv:2510.14967; ``compute_grpo_outcome_advantage`` of the authors' code, which leaves out turns whose
        reward is exactly 0.
    """
    if not joint:
        return group_relative(turn, group_of_turn, eps=eps), group_relative(outcome, group, eps=eps)
    both = group_relative(torch.cat([turn, outcome]), torch.cat([group_of_turn, group]), eps=eps)
    return both[: len(turn)], both[len(turn) :]


def turn_returns(
    reward: Float[Tensor, "R L"], ends: Bool[Tensor, "R L"], mask: Bool[Tensor, "R L"], gamma: float
) -> Float[Tensor, "R L"]:
    """What each turn and those after it earn, on all of the turn's tokens.

        A_t = r_t + gamma A_{t+1}

    Args:
        reward: of each turn on the last token that the policy wrote in it.
        ends: these tokens, but for the last turn's.
        mask: tokens that the policy wrote.
        gamma: discount per turn.
    """
    discount = torch.where(ends, gamma, 1.0).to(reward)
    return generalised_advantage(reward, torch.zeros_like(reward), mask, gamma=discount, lam=1.0)
