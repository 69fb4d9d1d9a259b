"""Generalised advantage estimation over the tokens that the policy wrote, with a value head (PPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest, Rows
from lyceum.core.keys import judged_steps
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, CreditWithKL, in_float32, kl_cost, lay, token_reward, whiten
from lyceum.credit.shares import token_shares
from lyceum.utils.lazy_imports import Tensor, torch


class GAE(CreditWithKL):
    """Each token against the value head's prediction before it.

    A truncated completion ends there like any other: its grade is its reward, and no value is bootstrapped for the
    missing rest. The limit is part of these tasks, and a grader has judged the truncated completion under it; a value
    on top would reward writing past the limit. TRL's PPO, verl and OpenRLHF do the same (a bootstrap was proposed to
    TRL, pull request 1536, and not merged); AReaL bootstraps, and drops the grade.
    """

    gives: ClassVar = ("value-targets",)

    kind: Literal["gae"] = "gae"
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount of the reward per token (no unit)."""
    lam: float = Field(0.95, ge=0, le=1)
    """GAE lambda: 0 bootstraps from the next value, 1 uses only the rewards (no unit)."""
    whiten: bool = True
    """Normalise the advantages of the step to mean 0 and standard deviation 1; value targets are unchanged."""
    process_coefficient: float = 0.0
    """Weight of process rewards, which are earned at the end of their step; 0 uses the outcome alone, as PPO and
    group credits do. Some tasks judge every step themselves: their sum can outweigh the answer."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"old_value"}

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().sources(outcome), *(("process",) if self.process_coefficient else ()))

    def build(self) -> Credit:
        return GAECredit(self.needs, self)


@dataclass
class GAECredit(BaseCredit):
    needs: frozenset[str]
    settings: GAE

    def __call__(self, forest: Forest) -> Credited:
        rows = forest.rows()
        mask = forest.trainable(rows)
        reward = outcome = token_reward(forest, rows, self.settings.kl_in_reward)
        process = None
        if self.settings.process_coefficient:
            process = self.settings.process_coefficient * process_reward(forest, rows)
            reward = reward + process
        value = rows.gather(forest.columns["old_value"]).masked_fill(~mask, 0)
        raw = generalised_advantage(reward, value, mask, gamma=self.settings.gamma, lam=self.settings.lam)
        advantage = whiten(raw, mask) if self.settings.whiten else raw
        target = in_float32(raw + value, forest, "a value target")
        cost = kl_cost(forest, rows, self.settings.kl_in_reward) if self.settings.kl_in_reward.coefficient else None
        shares = shares_of_rewards(outcome, cost, process, mask, gamma=self.settings.gamma, lam=self.settings.lam)
        return Credited(lay(advantage, forest, rows), value_target=target, metrics=shares)


def generalised_advantage(
    reward: Float[Tensor, "R L"],
    value: Float[Tensor, "R L"],
    mask: Bool[Tensor, "R L"],
    *,
    gamma: float | Float[Tensor, "R L"],
    lam: float,
    end_value: Float[Tensor, " R"] | None = None,
) -> Float[Tensor, "R L"]:
    """Each token's advantage, from the rewards and values of the tokens after it.

        delta_t = r_t + gamma V_{t+1} - V_t
        A_t = delta_t + gamma lam A_{t+1}        t + 1: the row's next token of the mask; V and A are 0 after the last

    Tokens outside the mask (a hint, a tool's answer) are skipped as time steps: the policy did not act there.

    Args:
        reward: earned by each token, in the verifier's unit.
        value: predicted before each token, in the same unit.
        mask: tokens that the policy wrote; entries elsewhere are not read.
        gamma: discount per token, or that of what comes after each token.
        lam: base of the exponential weights.
        end_value: V after each row's last token, where a row is unfinished; None: 0 for all.
    Returns:
        Advantage in the reward's unit, 0 outside the mask. Value targets are advantage + value.
    Source:
        Schulman et al., arXiv:1506.02438, equations 11 to 16.
    """
    advantage = torch.zeros_like(reward)
    after = reward.new_zeros(len(reward))
    value_after = reward.new_zeros(len(reward)) if end_value is None else end_value
    for t in reversed(range(reward.shape[1])):
        here = mask[:, t]
        discount = gamma if isinstance(gamma, float | int) else gamma[:, t]
        delta = reward[:, t] + discount * value_after - value[:, t]
        after = torch.where(here, delta + discount * lam * after, after)
        value_after = torch.where(here, value[:, t], value_after)
        advantage[:, t] = torch.where(here, after, 0)
    return advantage


def shares_of_rewards(
    earned: Float[Tensor, "R L"],
    cost: Float[Tensor, "R L"] | None,
    process: Float[Tensor, "R L"] | None,
    mask: Bool[Tensor, "R L"],
    *,
    gamma: float | Float[Tensor, "R L"],
    lam: float,
) -> dict[str, float]:
    """Shares of outcome, KL cost and process rewards, before values are subtracted; nothing for the outcome alone.

    Args:
        earned: by each token, its KL cost subtracted, in the reward's unit.
        cost: of KL; None without one.
        process: rewards of steps; None without any.
    """
    sources = {"outcome": earned if cost is None else earned + cost}
    if cost is not None:
        sources["kl"] = -cost
    if process is not None:
        sources["process"] = process
    if len(sources) == 1:
        return {}
    return token_shares(
        {
            name: generalised_advantage(reward, torch.zeros_like(reward), mask, gamma=gamma, lam=lam)
            for name, reward in sources.items()
        },
        mask,
    )


def process_reward(forest: Forest, rows: Rows) -> Float[Tensor, "R L"]:
    """Each judged segment's reward on the last token that the policy wrote in it, in the reward's unit.

    A judged segment without any such token earns nothing: the policy did not write it.
    """
    row, at, reward = judged_ends(forest, rows)
    return reward.new_zeros(rows.index.shape).index_put((row, at), reward, accumulate=True)


def judged_ends(forest: Forest, rows: Rows) -> tuple[Int[Tensor, " U"], Int[Tensor, " U"], Float[Tensor, " U"]]:
    """Row, last token that the policy wrote, and reward of each judged segment in which it wrote any."""
    mask = forest.trainable(rows)
    steps, reward = judged_steps(forest)
    if not len(reward):
        return steps.row, steps.end, reward
    position = torch.arange(mask.shape[1]).expand(mask.shape)
    written_up_to = position.masked_fill(~mask, -1).cummax(1).values
    at = written_up_to[steps.row, steps.end - 1]
    own = at >= steps.start
    return steps.row[own], at[own], reward[own]
