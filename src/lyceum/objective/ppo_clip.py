"""The clipped surrogate of PPO, with separate ranges below and above (DAPO) and the dual clip."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import PolicyObjective, Terms, measured, ratio_metrics, token_ratio
from lyceum.objective.kl import LOG_RATIO_LIMIT
from lyceum.utils.lazy_imports import Tensor, torch


class PPOClip(Terms):
    """Each token's ratio times its advantage, without an incentive to leave the clip range."""

    gives: ClassVar = ("episode-weights",)

    kind: Literal["ppo-clip"] = "ppo-clip"
    clip_low: float = Field(0.2, gt=0, le=1)
    """Lower clip: the ratio is clipped at 1 - clip_low (no unit)."""
    clip_high: float = Field(0.2, gt=0)
    """Upper clip: the ratio is clipped at 1 + clip_high (no unit); more than clip_low is DAPO's clip-higher."""
    dual_clip: float | None = Field(None, gt=1)
    """Where the advantage is negative, the loss is at most dual_clip * |advantage|; None for no bound."""
    log_ratio_limit: float | None = Field(None, gt=0, le=LOG_RATIO_LIMIT)
    """Largest |log ratio| (nats), bounded before it is exponentiated: a token beyond it has no gradient, also where the
    advantage is negative and the clip range does not bound its loss. ln 1000 in StableReinforce (R1-Reward,
    arXiv:2505.02835, and the authors' code, openrlhf/models/loss.py); null: 20, against overflow alone."""
    keep_high: bool = False
    """Whether a token that is clipped above keeps a gradient, that of a ratio of 1 + clip_high: such tokens are mostly
    uncertain ones (AEPO, arXiv:2510.14545)."""

    def build(self) -> Objective:
        return PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}))

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio = token_ratio(batch.logprob, batch.old_logprob, self.log_ratio_limit or LOG_RATIO_LIMIT)
        loss = clipped_surrogate(
            ratio, batch.advantage, self.clip_low, self.clip_high, self.dual_clip, keep_high=self.keep_high
        )
        metrics = ratio_metrics(ratio, batch) | clip_metrics(ratio, batch, self.clip_low, self.clip_high)
        if self.dual_clip is not None:
            metrics["clip/dual"] = measured((batch.advantage < 0) & (ratio > self.dual_clip), batch.mask)
        if self.log_ratio_limit is not None:
            beyond = (batch.logprob - batch.old_logprob).abs() > self.log_ratio_limit
            metrics["clip/log_ratio"] = measured(beyond, batch.mask)
        return loss, metrics


def clipped_surrogate(
    ratio: Float[Tensor, "*token"],
    advantage: Float[Tensor, "*token"],
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    *,
    keep_high: bool = False,
) -> Float[Tensor, "*token"]:
    """Each token's clipped loss.

        -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)        and at most -dual_clip * A where A < 0

    Args:
        ratio: pi / pi_old, without unit, with gradient.
        advantage: without unit.
        clip_low, clip_high: half-widths of the clip range below and above 1.
        dual_clip: bound on the ratio of a token with a negative advantage; None for no bound.
        keep_high: the upper bound is (1 + clip_high) ratio / sg[ratio], of the same value (sg: without gradient).
    Returns:
        Loss of each token, in the advantage's unit.
    Source:
        PPO, arXiv:1707.06347, equation 7; separate ranges: DAPO, arXiv:2503.14476, equation 10; dual clip:
        arXiv:1912.09729; keep_high: AEPO, arXiv:2510.14545, ``compute_policy_loss_entropy_balanced_clipping`` of its
        code.
    """
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    if keep_high:
        clipped = torch.where(ratio > 1 + clip_high, (1 + clip_high) * ratio / ratio.detach(), clipped)
    gain = torch.minimum(ratio * advantage, clipped * advantage)
    if dual_clip is not None:
        gain = torch.where(advantage < 0, torch.maximum(gain, dual_clip * advantage), gain)
    return -gain


def clipped_loss(batch: Batch, clip_low: float, clip_high: float) -> tuple[Float[Tensor, "R L"], Metrics]:
    """Each token's clipped loss, in the advantage's unit, by the ratios of a batch; and their metrics."""
    ratio = token_ratio(batch.logprob, batch.old_logprob)
    loss = clipped_surrogate(ratio, batch.advantage, clip_low, clip_high)
    return loss, ratio_metrics(ratio, batch) | clip_metrics(ratio, batch, clip_low, clip_high)


def clip_metrics(ratio: Float[Tensor, "R L"], batch: Batch, clip_low: float, clip_high: float) -> Metrics:
    """Shares of tokens whose gradient is clipped, below and above."""
    return {
        "clip/low": measured((batch.advantage < 0) & (ratio < 1 - clip_low), batch.mask),
        "clip/high": measured((batch.advantage > 0) & (ratio > 1 + clip_high), batch.mask),
    }
