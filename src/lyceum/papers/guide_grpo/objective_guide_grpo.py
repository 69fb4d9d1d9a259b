"""Guide-GRPO's loss: tokens written under a hint are weighted by unhinted over hinted probability."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Bool, Float
from pydantic import Field, model_validator

from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import PolicyObjective, Terms, measured, token_ratio
from lyceum.objective.ppo_clip import clipped_loss
from lyceum.utils.lazy_imports import Tensor, torch

Shaping = Literal["percentile", "constant", "power", "none"]

SMALLEST_GAMMA = 1e-4


class GuideLoss(Terms):
    """PPO's clipped surrogate on the policy's own tokens; on those that it wrote under another prompt, a shaped
    importance weight against that prompt, without clipping."""

    formerly: ClassVar[tuple[str, ...]] = ("guide",)
    kind: Literal["guide-grpo"] = "guide-grpo"
    clip_low: float = Field(0.2, gt=0, le=1)
    """Lower clip: the ratio of unguided tokens is clipped at 1 - clip_low (no unit)."""
    clip_high: float = Field(0.2, gt=0)
    """Upper clip: the ratio of unguided tokens is clipped at 1 + clip_high (no unit)."""
    shaping: Shaping = "percentile"
    """Shaping of a guided token's weight w: w / (w + g), where g is a percentile of the row's weights or a constant;
    w to a power; or none. The authors' runs take the 90th percentile (including padding, see
    :func:`shaped_weight`)."""
    shaping_value: float = Field(0.9, gt=0)
    """The percentile (0.9 is the 90th), the constant g, or the exponent; no unit."""

    @model_validator(mode="after")
    def _percentile_is_a_share(self) -> GuideLoss:
        if self.shaping == "percentile" and self.shaping_value > 1:
            raise ValueError(f"shaping_value: got {self.shaping_value} with shaping 'percentile'; allowed: at most 1")
        return self

    def build(self) -> Objective:
        return PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}))

    def corrected(self, batch: Batch) -> Bool[Tensor, "R L"]:
        # A guided token's ratio already has the engine's probability as its denominator.
        own = super().corrected(batch)
        return own if batch.grafted is None else own & ~batch.grafted

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss, metrics = clipped_loss(batch, self.clip_low, self.clip_high)
        if batch.grafted is None:
            return loss, metrics
        guided = batch.mask & batch.grafted
        across = token_ratio(batch.logprob, batch.behaviour_logprob)
        weight = shaped_weight(across, guided, self.shaping, self.shaping_value)
        metrics |= {"guided/ratio": measured(across, guided), "guided/weight": measured(weight, guided)}
        return torch.where(guided, -weight * batch.advantage, loss), metrics


def shaped_weight(
    ratio: Float[Tensor, "R L"], guided: Bool[Tensor, "R L"], shaping: Shaping, value: float
) -> Float[Tensor, "R L"]:
    """Factor on a guided token's advantage.

        w_t = pi_theta(y_t | q, y_<t) / pi_old(y_t | q, hint, y_<t)
        percentile:  w / (w + sg[quantile(w of the row, value)])        sg: without gradient; at least 1e-4
        constant:    w / (w + value)
        power:       w ** value
        none:        w

    The percentile is per row, over its guided tokens, so that the loss depends neither on micro-batching nor on the
    longest completion. The authors' code takes it per micro-batch, which is one row in their runs, and over every
    position up to the maximum completion length: the padding after a short row counts there with whatever ratios its
    pad tokens have.

    Args:
        ratio: w, without unit, with gradient.
        guided: tokens written under the hint; entries elsewhere are not read.
        shaping, value: as above.
    Returns:
        Weights without unit, with gradient; undefined outside ``guided``.
    Source:
        Guide-GRPO, arXiv:2506.13923; shaping as in the authors' code (guide_rl, ``compute_policy_loss``).
    """
    match shaping:
        case "percentile":
            kept = torch.where(guided, ratio.detach(), torch.nan)
            gamma = torch.nanquantile(kept, value, dim=1, keepdim=True).clamp(min=SMALLEST_GAMMA)
            return ratio / (ratio + gamma.nan_to_num(1.0))
        case "constant":
            return ratio / (ratio + value)
        case "power":
            return ratio**value
        case "none":
            return ratio
