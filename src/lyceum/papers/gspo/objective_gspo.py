"""GSPO: one ratio per row, and its token form."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import Field

from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import Aggregate, PolicyObjective, Terms, ratio_metrics
from lyceum.objective.kl import LOG_RATIO_LIMIT
from lyceum.objective.ppo_clip import clip_metrics, clipped_surrogate
from lyceum.utils.lazy_imports import Tensor, torch


class GSPO(Terms):
    """The clipped surrogate with the row's length-normalised likelihood ratio in place of each token's."""

    kind: Literal["gspo"] = "gspo"
    aggregate: Aggregate = "sequence"
    """Aggregation of the loss over tokens; ``sequence`` (every row the same) is the paper's."""
    form: Literal["sequence", "token"] = "sequence"
    """``token`` (GSPO-token) supports per-token advantages: the same value, with per-token gradients."""
    clip_low: float = Field(3e-4, gt=0, le=1)
    """Lower clip: the ratio is clipped at 1 - clip_low (no unit); rows' ratios move far less than tokens' do."""
    clip_high: float = Field(4e-4, gt=0)
    """Upper clip: the ratio is clipped at 1 + clip_high (no unit)."""

    def build(self) -> Objective:
        return PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}))

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio = sequence_ratio(batch.logprob, batch.old_logprob, batch.mask)
        if self.form == "token":
            ratio = per_token_gradient(ratio, batch.logprob)
        loss = clipped_surrogate(ratio, batch.advantage, self.clip_low, self.clip_high)
        return loss, ratio_metrics(ratio, batch) | clip_metrics(ratio, batch, self.clip_low, self.clip_high)


def sequence_ratio(
    logprob: Float[Tensor, "R L"], old_logprob: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"]
) -> Float[Tensor, "R L"]:
    """A row's likelihood ratio to the power 1 / length, the same on each of its tokens.

        s_i = exp(1/|y_i| sum_t (logprob_t - old_logprob_t))

    Args:
        logprob, old_logprob: nats, of the current weights and of those at the start of the step.
        mask: the row's tokens y_i; whole rows, never parts of them.
    Returns:
        Without unit, (R, L).
    Source:
        GSPO, arXiv:2507.18071, equation 7.
    """
    length = mask.sum(1, keepdim=True).clamp(min=1)
    log_ratio = torch.where(mask, logprob - old_logprob, 0).sum(1, keepdim=True) / length
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().expand(mask.shape)


def per_token_gradient(ratio: Float[Tensor, "R L"], logprob: Float[Tensor, "R L"]) -> Float[Tensor, "R L"]:
    """The row's ratio in value, with a gradient through each token's own log-probability.

        s_it = sg[s_i] pi_t / sg[pi_t]        sg: without gradient

    Source:
        GSPO-token, arXiv:2507.18071, equation 14.
    """
    return ratio.detach() * (logprob - logprob.detach()).exp()
