"""REC: REINFORCE on samples of an older policy, held by a clip alone, by a regulariser, or by weights."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import Field, model_validator

from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import PolicyObjective, Terms, measured, ratio_metrics, token_ratio
from lyceum.objective.kl import LOG_RATIO_LIMIT
from lyceum.utils.lazy_imports import Tensor, torch

Clip = Literal["none", "one-side", "two-side", "ring"]
Weight = Literal["none", "importance", "advantage"]


class REC(Terms):
    """Each token's log-probability times its advantage, without gradient where its ratio is out of range.

    Source:
        Yao et al., arXiv:2509.24203; authors' code in Trinity-RFT (``rec_policy_loss.py``, ``examples/rec_gsm8k``).
    """

    kind: Literal["rec"] = "rec"
    clip: Clip = "one-side"
    """Tokens that are trained. ``one-side``: ratios up to 1 + clip_high where the advantage is positive, from
    1 - clip_low where it is negative (PPO's); ``two-side``: within both, whatever the advantage; ``ring``: these, and
    ratios that are far off on the side from which the advantage pulls them back; ``none``: all."""
    clip_low: float = Field(0.6, gt=0, le=1)
    """Lower end of the range: 1 - clip_low (no unit)."""
    clip_high: float = Field(2.0, gt=0)
    """Upper end of the range: 1 + clip_high (no unit)."""
    ring_low: float = Field(0.6, gt=0, le=1)
    """With ``ring``: tokens with a positive advantage are trained again below 1 - ring_low."""
    ring_high: float = Field(2.0, gt=0)
    """With ``ring``: tokens with a negative advantage are trained again above 1 + ring_high."""
    weigh: Weight = "none"
    """Further factor on a token's advantage: ``importance``: its ratio; ``advantage``: exp(A / temperature), so that
    good samples count for more (RED-Weight)."""
    temperature: float = Field(1.0, gt=0)
    """Temperature of the weights, in the advantage's unit."""
    regulariser: Literal["none", "imitation", "squared"] = "none"
    """Term added to each token's loss: ``imitation``: its negative log-probability, the forward KL from the policy
    that sampled (AsymRE); ``squared``: its squared log-ratio (Kimi's OPMD)."""
    coefficient: float = Field(0.1, ge=0, le=1e6)
    """Weight of the regulariser, in loss units per nat, or per squared nat."""

    @model_validator(mode="after")
    def _ring_is_outside(self) -> REC:
        for end in ("low", "high") if self.clip == "ring" else ():
            ring, clip = getattr(self, f"ring_{end}"), getattr(self, f"clip_{end}")
            if ring < clip:
                raise ValueError(f"ring_{end}: got {ring:g}; allowed: at least clip_{end}, which is {clip:g}")
        return self

    def build(self) -> Objective:
        objective = PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}))
        objective.skips &= self.regulariser == "none"  # which has a gradient whatever the advantage is
        return objective

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio = token_ratio(batch.logprob, batch.old_logprob).detach()
        kept = in_range(ratio, batch.advantage, self)
        weight = sample_weight(ratio, batch.advantage, self.weigh, self.temperature)
        loss = torch.where(kept, -weight * batch.advantage * batch.logprob, 0)
        if self.regulariser == "imitation":
            loss = loss - self.coefficient * batch.logprob
        if self.regulariser == "squared":
            loss = loss + self.coefficient * (batch.logprob - batch.old_logprob).square()
        metrics = ratio_metrics(ratio, batch) | {"rec/masked": measured(~kept, batch.mask)}
        if self.weigh != "none":
            metrics["rec/weight"] = measured(weight, batch.mask)
        return loss, metrics


def in_range(ratio: Float[Tensor, "R L"], advantage: Float[Tensor, "R L"], settings: REC) -> Bool[Tensor, "R L"]:
    """Tokens whose gradient is kept, by ``clip``.

    Args:
        ratio: pi / pi_old, without unit.
        advantage: of each token.
    """
    below, above = ratio <= 1 + settings.clip_high, ratio >= 1 - settings.clip_low
    match settings.clip:
        case "none":
            return torch.ones_like(below)
        case "one-side":
            return ((advantage >= 0) & below) | ((advantage <= 0) & above)
        case "two-side":
            return below & above
        case "ring":
            up = (advantage >= 0) & (ratio <= 1 - settings.ring_low)
            down = (advantage <= 0) & (ratio >= 1 + settings.ring_high)
            return (below & above) | up | down


def sample_weight(
    ratio: Float[Tensor, "R L"], advantage: Float[Tensor, "R L"], weigh: Weight, temperature: float
) -> Float[Tensor, "R L"]:
    """Factor on each token's advantage, without unit: 1, its ratio, or exp(A / temperature)."""
    match weigh:
        case "none":
            return torch.ones_like(ratio)
        case "importance":
            return ratio
        case "advantage":
            return (advantage / temperature).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
