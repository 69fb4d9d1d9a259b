"""CISPO: the importance weight is clipped, not the gradient."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import PolicyObjective, Terms, measured, ratio_metrics, token_ratio
from lyceum.utils.lazy_imports import Tensor


class CISPO(Terms):
    """REINFORCE with each token weighted by its clipped ratio, so that no token loses its gradient."""

    kind: Literal["cispo"] = "cispo"
    clip_low: float = Field(1.0, gt=0, le=1)
    """Lower clip: the weight is at least 1 - clip_low (no unit); 1 is no lower bound, as in the paper."""
    clip_high: float = Field(4.0, gt=0)
    """Upper clip: the weight is at most 1 + clip_high (no unit). The paper tunes it without reporting it; ScaleRL
    (arXiv:2510.13786) finds that bounds on the weight of 4 to 8 perform alike."""

    def build(self) -> Objective:
        return PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}))

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio = token_ratio(batch.logprob, batch.old_logprob)
        loss = clipped_weight_loss(batch.logprob, ratio, batch.advantage, self.clip_low, self.clip_high)
        low, high = 1 - self.clip_low, 1 + self.clip_high
        clipped = {
            "clip/low": measured(ratio < low, batch.mask),
            "clip/high": measured(ratio > high, batch.mask),
        }
        return loss, ratio_metrics(ratio, batch) | clipped


def clipped_weight_loss(
    logprob: Float[Tensor, "R L"],
    ratio: Float[Tensor, "R L"],
    advantage: Float[Tensor, "R L"],
    clip_low: float,
    clip_high: float,
) -> Float[Tensor, "R L"]:
    """Each token's log-probability times its advantage and a constant weight.

        -sg[clip(ratio, 1 - clip_low, 1 + clip_high)] * A * logprob        sg: without gradient

    Args:
        logprob: nats, with gradient.
        ratio: pi / pi_old, without unit.
        advantage: without unit.
        clip_low, clip_high: how far below and above 1 the weight may be.
    Returns:
        Loss of each token. Its value is not meaningful; its gradient is the clipped-weight policy gradient.
    Source:
        MiniMax-M1, arXiv:2506.13585, equations 4 and 5.
    """
    return -ratio.detach().clamp(1 - clip_low, 1 + clip_high) * advantage * logprob
