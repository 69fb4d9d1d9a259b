"""HAPO: advantage and clip range of each token follow its entropy."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import PolicyObjective, Terms, measured, ratio_metrics, token_ratio
from lyceum.utils.lazy_imports import Tensor, torch


class HAPO(Terms):
    """PPO's surrogate; credit ``hapo`` says of each token how high its entropy is, from -1 to 1."""

    requires: ClassVar = ("relative-entropy",)

    kind: Literal["hapo"] = "hapo"
    clip_low: float = Field(0.2, gt=0, le=0.5)
    """Lower clip at 1 - clip_low (no unit); up to twice as far for low-entropy tokens."""
    clip_high: float = Field(0.2, gt=0)
    """Upper clip at 1 + clip_high (no unit); up to twice as far for high-entropy tokens."""
    dual_clip: float | None = Field(None, gt=1)
    """Where the advantage is negative, the loss is at most dual_clip * |advantage|; None for no bound. 10 in the
    authors' scripts."""
    redistribute: bool = True
    """Scale the advantages of tokens with a clear signal by 1 + h."""
    adapt_clip: bool = True
    """Let the clip range follow the entropy."""

    def build(self) -> Objective:
        return PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}))

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        h = batch.columns["relative_entropy"]
        ratio = token_ratio(batch.logprob, batch.old_logprob)
        low, high = clip_range(h, self.clip_low, self.clip_high) if self.adapt_clip else (self.clip_low, self.clip_high)
        low, high = low + torch.zeros_like(h), high + torch.zeros_like(h)
        advantage = batch.advantage
        if self.redistribute:
            advantage = redistributed(advantage, h, ratio.detach(), low, high)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
        if self.dual_clip is not None:
            gain = torch.where(advantage < 0, torch.maximum(gain, self.dual_clip * advantage), gain)
        metrics = ratio_metrics(ratio, batch) | {
            "clip/low": measured((advantage < 0) & (ratio < 1 - low), batch.mask),
            "clip/high": measured((advantage > 0) & (ratio > 1 + high), batch.mask),
            "hapo/high_entropy": measured(h > 0, batch.mask),
            "hapo/redistributed": measured(advantage != batch.advantage, batch.mask),
            "hapo/wider_clip": measured((low > self.clip_low) | (high > self.clip_high), batch.mask),
        }
        if self.dual_clip is not None:
            metrics["clip/dual"] = measured((advantage < 0) & (ratio > self.dual_clip), batch.mask)
        return -gain, metrics


def clip_range(h: Float[Tensor, "R L"], low: float, high: float) -> tuple[Float[Tensor, "R L"], Float[Tensor, "R L"]]:
    """Half-widths of the clip range: a low-entropy token, noise, may fall further, a high-entropy one rise further.

        low_t = low (1 + max(-h_t, 0))        high_t = high (1 + max(h_t, 0))

    Args:
        h: relative entropy, -1 to 1.
    Source:
        HAPO, arXiv:2509.16591 (asymmetric adaptive clipping); starriver030515/HAPO, ``ada_clip`` with alpha 1.
    """
    return low * (1 - h.clamp(max=0)), high * (1 + h.clamp(min=0))


def redistributed(
    advantage: Float[Tensor, "R L"],
    h: Float[Tensor, "R L"],
    ratio: Float[Tensor, "R L"],
    low: Float[Tensor, "R L"],
    high: Float[Tensor, "R L"],
) -> Float[Tensor, "R L"]:
    """Advantages by entropy and ratio.

        A (1 + h)    of high-entropy tokens whose ratio has left [1 - low/2, 1 + high/2]: they are being learnt
        A (1 + h)    of low-entropy tokens (h < 0) whose ratio is inside it
        A            of all others

    Args:
        advantage: without unit.
        h: relative entropy, -1 to 1.
        ratio: pi / pi_old, without gradient.
        low, high: half-widths of each token's clip range.
    Source:
        HAPO, arXiv:2509.16591 (differential advantage redistribution); starriver030515/HAPO, ``ada_advantage``, beta 1.
    """
    inside = (ratio > 1 - low / 2) & (ratio < 1 + high / 2)
    return torch.where(inside == (h > 0), advantage, advantage * (1 + h))
