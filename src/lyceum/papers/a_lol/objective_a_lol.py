"""A-LoL: trajectories of positive advantage alone, each by how likely it has become under the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import PolicyObjective, Terms, measured
from lyceum.objective.kl import LOG_RATIO_LIMIT
from lyceum.utils.lazy_imports import Tensor, torch


class ALoL(Terms):
    """The log-likelihood of each trajectory, times its advantage where that is positive, times a clipped ratio."""

    kind: Literal["a-lol"] = "a-lol"
    ratio: Literal["sequence", "token", "none"] = "sequence"
    """Ratio of the policy to the reference, without gradient: of the whole trajectory (A-LoL), of each token (A-LoL
    seq), or 1 (A-LoL ref. free, and with ``kl`` A-LoL KL)."""
    clip_range: float = Field(0.9, gt=0, lt=1)
    """Ratios are clipped to 1 - clip_range .. 1 + clip_range (no unit)."""

    @property
    def columns(self) -> frozenset[str]:
        return super().columns | (frozenset() if self.ratio == "none" else frozenset({"reference_logprob"}))

    def build(self) -> Objective:
        return Leftover(self, self.surrogate)

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        weight = torch.ones_like(batch.logprob)
        if self.ratio != "none":
            if batch.reference_logprob is None:
                raise ValueError("objective.kind 'a-lol' needs reference_logprob, which the batch does not have")
            log_ratio = (batch.logprob - batch.reference_logprob).detach()
            weight = clipped_ratio(log_ratio, batch.mask, self.ratio, self.clip_range)
        metrics = {
            "a-lol/ratio": measured(weight, batch.mask),
            "a-lol/advantage": measured(batch.advantage, batch.mask),
        }
        return -batch.advantage.clamp(min=0) * weight * batch.logprob, metrics


class Leftover(PolicyObjective):
    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        positive = (torch.where(mask, credited.advantage, 0) > 0).any(1)
        counts = {"a-lol/kept": float(positive.sum()), "a-lol/left_out": float((mask.any(1) & ~positive).sum())}
        return StepPlan(self.weights(mask & positive[:, None], updates), positive, counts=counts)


def clipped_ratio(
    log_ratio: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"], of: Literal["sequence", "token"], clip_range: float
) -> Float[Tensor, "R L"]:
    """Each token's ratio pi / pi_ref within 1 - clip_range .. 1 + clip_range, no unit: its trajectory's or its own.

    The loss of a trajectory is -max(0, A) sum_t ratio_t log pi(y_t); the gradient goes through log pi alone.

    Args:
        log_ratio: of each token, nats; 0 outside the mask.
    Source:
        Baheti et al., arXiv:2305.14718; authors' code abaheti95/LoL-RL (``lolrl_qlora_llama_hh.py``).
    """
    summed = log_ratio.sum(1, keepdim=True).expand_as(mask) if of == "sequence" else log_ratio
    return summed.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(1 - clip_range, 1 + clip_range)
