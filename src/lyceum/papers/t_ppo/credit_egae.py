"""Extended generalised advantages: completions are trained before they are finished (T-PPO)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from jaxtyping import Bool
from pydantic import Field

from lyceum.core.forest import Forest, Rows
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, CreditWithKL, in_float32, kl_cost, last_token, lay, token_reward, whiten
from lyceum.credit.gae import generalised_advantage, shares_of_rewards
from lyceum.utils.lazy_imports import Tensor, torch


class EGAE(CreditWithKL):
    """Each token against the value head's prediction, on unfinished completions too: V after the last token is taken to
    be the value before it. Each token has an advantage once, in the step that drew it; the value head learns from
    finished completions alone, from their returns (T-PPO, arXiv:2506.15050).

    Completions of one task are graded together: with ``samples: 1`` each is as soon as it ends.
    """

    reads_unfinished: ClassVar[bool] = True
    gives: ClassVar = ("value-targets",)
    refuses: ClassVar = ("replay",)

    kind: Literal["egae"] = "egae"
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount of the reward per token (no unit)."""
    lam: float = Field(0.95, ge=0, le=1)
    """GAE lambda of the policy: 0 bootstraps from the next value, 1 uses only the rewards (no unit)."""
    held_back: int = Field(default=0, ge=0)
    """Last tokens of an unfinished completion, whose advantages are known least, which are trained in the next step."""
    whiten: bool = True
    """Normalise the advantages of the step to mean 0 and standard deviation 1; value targets are unchanged."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"old_value"}

    def build(self) -> Credit:
        return EGAECredit(self.needs, self)


@dataclass
class EGAECredit(BaseCredit):
    needs: frozenset[str]
    settings: EGAE

    def __call__(self, forest: Forest) -> Credited:
        settings, rows = self.settings, forest.rows()
        unfinished = forest.reward.isnan()
        forest = replace(forest, reward=forest.reward.masked_fill(unfinished, 0))
        mask = forest.trainable(rows)
        reward = token_reward(forest, rows, settings.kl_in_reward)
        value = rows.gather(forest.columns["old_value"]).masked_fill(~mask, 0)
        last_value = (value * last_token(mask)).sum(1)
        end_value = torch.where(unfinished, last_value, 0)
        raw = generalised_advantage(reward, value, mask, gamma=settings.gamma, lam=settings.lam, end_value=end_value)
        newest = newest_tokens(forest, rows, mask)
        trained = window(newest, mask, unfinished, settings.held_back)
        advantage = whiten(raw, trained) if settings.whiten else raw.masked_fill(~trained, 0)
        returns = generalised_advantage(reward, value, mask, gamma=settings.gamma, lam=1.0) + value
        target = in_float32(returns, forest, "a value target").masked_fill(unfinished[:, None], torch.nan)
        counts = {
            "unfinished/rows": unfinished,
            "unfinished/trained": trained & unfinished[:, None],
            "unfinished/held_back": mask & ~trained & unfinished[:, None] & newest,
            "tokens/policy": trained,
            "tokens/value": mask & ~unfinished[:, None],
        }
        metrics = {name: float(counted.sum()) for name, counted in counts.items()}
        if settings.kl_in_reward.coefficient:
            cost = kl_cost(forest, rows, settings.kl_in_reward)
            metrics |= shares_of_rewards(reward, cost, None, trained, gamma=settings.gamma, lam=settings.lam)
        return Credited(lay(advantage, forest, rows), value_target=target, metrics=metrics)


def window(
    newest: Bool[Tensor, "R L"], mask: Bool[Tensor, "R L"], unfinished: Bool[Tensor, " R"], held_back: int
) -> Bool[Tensor, "R L"]:
    """The tokens that the policy trains in this step: those that each row was continued by last, but that an unfinished
    row's last ``held_back`` wait for the next step, and those of the step before are trained now.

    Every token of a trajectory is in the window of exactly one step.

    Args:
        newest: of :func:`newest_tokens`.
        mask: the policy's tokens.
    """
    end = mask.sum(1, keepdim=True)
    number = mask.cumsum(1) - 1  # of each of the policy's tokens in its row
    start = end - newest.sum(1, keepdim=True)
    held = held_back * unfinished[:, None]
    return mask & (number >= start - held_back) & (number < end - held)


def newest_tokens(forest: Forest, rows: Rows, mask: Bool[Tensor, "R L"]) -> Bool[Tensor, "R L"]:
    """Tokens drawn under the weights that each row's last token was drawn under."""
    version = rows.gather(forest.version)
    return mask & (version == (version * last_token(mask)).sum(1, keepdim=True))
