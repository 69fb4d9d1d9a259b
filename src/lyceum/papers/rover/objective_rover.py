"""ROVER: the policy as the Q-function of the uniformly random policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.types import Batch, FrozenName, Metrics, Objective, Reduction
from lyceum.models.bits import RULED_OUT
from lyceum.objective.base import PolicyObjective, Terms, measured, ratio_metrics, token_ratio
from lyceum.utils.lazy_imports import Tensor, torch


class Rover(Terms):
    """Squared error of each token's Q-value, which is the log-ratio of the policy to the one at the step's start."""

    kind: Literal["rover"] = "rover"
    rho: float = Field(default=1.0, gt=0)
    """Q-value of a log-ratio of 1 nat (reward units per nat): the temperature of the policy over Q."""
    bootstrap: float = Field(default=1.0, ge=0)
    """Factor on the next token's mean Q-value in the target (no unit); 0 regresses on the reward alone."""

    def build(self) -> Objective:
        return PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}), reductions=(MeanLogprob(),))

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        mean_q = self.rho * (batch.columns["mean_logprob"].detach() - batch.columns["old_mean_logprob"])
        q = self.rho * (batch.logprob - batch.old_logprob)
        following = self.bootstrap * next_token(mean_q, batch.mask)
        metrics = {
            "rover/q": measured(q, batch.mask),
            "rover/next_q": measured(following, batch.mask),
            "rover/abs_next_q": measured(following.abs(), batch.mask),
        }
        metrics |= ratio_metrics(token_ratio(batch.logprob, batch.old_logprob), batch)
        return q_loss(q, batch.advantage + following), metrics


@dataclass(frozen=True)
class MeanLogprob(Reduction):
    """Mean log-probability of the vocabulary, in nats: what the uniformly random policy expects of log pi. Tokens that
    a constraint rules out are not in it."""

    @property
    def models(self) -> frozenset[FrozenName]:
        return frozenset()

    @property
    def old(self) -> bool:
        return True

    def __call__(
        self, logits: Float[Tensor, "k V"], token: Int[Tensor, " k"], frozen: Mapping[FrozenName, Float[Tensor, "k V"]]
    ) -> dict[str, Float[Tensor, " k"]]:
        # The target takes no gradient.
        excluded = logits == RULED_OUT
        mean = logits.mean(-1)
        if excluded.any():
            mean = logits.masked_fill(excluded, 0).sum(-1) / (~excluded).sum(-1)
        return {"mean_logprob": (mean - logits.logsumexp(-1)).detach()}


def q_loss(q: Float[Tensor, "R L"], target: Float[Tensor, "R L"]) -> Float[Tensor, "R L"]:
    """Squared temporal-difference error of each token.

        Q_t = rho (log pi(y_t) - log pi_old(y_t))
        L_t = (Q_t - sg[r + 1/V sum_v Q_t+1(v)])^2        sg: without gradient; no Q after the last token

    Args:
        q: with gradient, in the reward's unit.
        target: the reward minus its group's mean, on every token, plus the next token's Q-value under the uniformly
            random policy.
    Returns:
        Squared reward units per token.
    Source:
        ROVER, arXiv:2509.24981; authors' code yuxiaooye/ROVER (``compute_rover_loss``, ``DataParallelROVERActor``).
    """
    return (q - target.detach()).square()


def next_token(value: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"]) -> Float[Tensor, "R L"]:
    """At each token of the mask, the value at the next token of the mask in its row; 0 at the last one."""
    length = value.shape[1]
    place = torch.where(mask, torch.arange(length, device=value.device), length)
    following = place.flip(1).cummin(1).values.flip(1)  # the first of the mask from here on
    following = torch.nn.functional.pad(following[:, 1:], (0, 1), value=length)
    return torch.nn.functional.pad(value, (0, 1)).gather(1, following)
