"""Generalised advantages with discounts at the ends of actions alone (Bellman backup with action decomposition)."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Bool
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit._steps import StepwiseCredit
from lyceum.credit.base import ForestCredit, in_float32, kl_cost, lay, token_reward, whiten
from lyceum.credit.gae import generalised_advantage, shares_of_rewards
from lyceum.utils.lazy_imports import Tensor, torch


class ActionGAE(StepwiseCredit):
    """Each token against the value head's prediction before it, where time passes from action to action.

    With a discount per token (``gae``) a long action is worth less than a short one that does the same. Here an action,
    a step of the completion, costs one discount however many tokens it has.
    """

    without_steps: ClassVar[str] = "gae"
    gives: ClassVar = ("value-targets",)

    kind: Literal["action-gae"] = "action-gae"
    gamma: float = Field(0.95, ge=0, le=1)
    """Discount per action (no unit); 1 inside of an action."""
    lam: float = Field(0.95, ge=0, le=1)
    """GAE lambda, per token: 0 bootstraps from the next value, 1 uses only the rewards (no unit)."""
    whiten: bool = True
    """Normalise the advantages of the step to mean 0 and standard deviation 1; value targets are unchanged."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"old_value"}

    def build(self) -> Credit:
        return ForestCredit(self.needs, self.credited)

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        mask = forest.trainable(rows)
        ends = self.action_ends(forest, mask)
        discount = torch.where(ends, self.gamma, 1.0)
        value = rows.gather(forest.columns["old_value"]).masked_fill(~mask, 0)
        reward = token_reward(forest, rows, self.kl_in_reward)
        raw = generalised_advantage(reward, value, mask, gamma=discount.to(reward), lam=self.lam)
        advantage = whiten(raw, mask) if self.whiten else raw
        target = in_float32(raw + value, forest, "a value target")
        metrics = {"actions": float(ends.sum()), "tokens_within_actions": float((mask & ~ends).sum())}
        if self.kl_in_reward.coefficient:
            cost = kl_cost(forest, rows, self.kl_in_reward)
            metrics |= shares_of_rewards(reward, cost, None, mask, gamma=discount.to(reward), lam=self.lam)
        return Credited(lay(advantage, forest, rows), value_target=target, metrics=metrics)

    def action_ends(self, forest: Forest, mask: Bool[Tensor, "R L"]) -> Bool[Tensor, "R L"]:
        """The last token that the policy wrote in each step."""
        ends = torch.zeros_like(mask)
        for row, own in enumerate(self.spans(forest, learns=bool(mask.any()))):
            for start, end in own:
                written = mask[row, start:end].nonzero()
                if len(written):
                    ends[row, start + int(written[-1])] = True
        return ends
