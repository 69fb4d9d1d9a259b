"""ReMix: PPO's clip around the ratio at which a recorded token stands, and a KL penalty against two policies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.component import Settings, require_keys
from lyceum.core.group import AGE
from lyceum.core.settings import Composition
from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import PolicyObjective, Terms, measured, ratio_metrics, token_ratio
from lyceum.objective.kl import Estimator, kl_estimate
from lyceum.utils.lazy_imports import Tensor, torch


class KLConvex(Settings):
    """A KL penalty against the reference and the policy at the start of the step, whose shares add up to 1."""

    coefficient: float = Field(default=0.001, ge=0)
    """KL coefficient, in loss units per nat; 0 turns the penalty and the reference model off."""
    estimator: Estimator = "k3"
    """Estimator of both divergences, as in ``kl``."""
    hold_steps: int = Field(default=50, ge=0)
    """Steps of the stage in which the reference alone counts."""
    fall: float = Field(default=0.1, ge=0, le=1)
    """By what its share falls every ``fall_steps`` steps after them (no unit)."""
    fall_steps: int = Field(default=10, ge=1)
    """Steps between two falls."""
    least: float = Field(default=0.5, ge=0, le=1)
    """Lowest share of the reference (0 to 1)."""

    def share(self, step: int) -> float:
        """Share of the reference after so many steps.

            lambda(t) = max(1 - fall * ceil(max(t - hold, 0) / fall_steps), least)

        Source:
            ReMix, arXiv:2507.06892 (KL-convex constraint); 0.1, 50, 10 and 0.5 are its numbers.
        """
        return max(1 - self.fall * math.ceil(max(step - self.hold_steps, 0) / self.fall_steps), self.least)


class MixPolicy(Terms):
    """Clips each token's ratio to the policy that sampled it, for a stage with ``replay``.

    Source:
        ReMix, arXiv:2507.06892 (mix-policy proximal policy gradient, KL-convex constraint), as described in notes on
        the paper; its code is not released.
    """

    kind: Literal["mix-policy"] = "mix-policy"
    clip_low: float = Field(0.2, gt=0, le=1)
    """Lower clip: the ratio is clipped this much below the one at the start of the step (no unit)."""
    clip_high: float = Field(0.2, gt=0)
    """Upper clip: this much above it."""
    kl_convex: KLConvex = KLConvex()
    """KL penalty against two policies."""

    @property
    def columns(self) -> frozenset[str]:
        return super().columns | ({"reference_logprob"} if self.kl_convex.coefficient else frozenset())

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if stage.replay is not None and stage.replay.ratio != "step":
            lines.append(
                f"replay.ratio: got {stage.replay.ratio!r}, but objective.kind '{self.kind}' reads both the "
                "probability of a recorded token when it was sampled and that at the start of the step; allowed: step"
            )
        return lines

    def build(self) -> Objective:
        return MixPolicyObjective(self)


class MixPolicyObjective(PolicyObjective):
    """The surrogate, the penalty, and how many steps are done."""

    def __init__(self, settings: MixPolicy) -> None:
        super().__init__(settings, self.clipped, needs=frozenset({"old_logprob"}))
        self.settings, self.steps = settings, 0

    def clipped(self, batch: Batch) -> tuple[Tensor, Metrics]:
        recorded = batch.mask & (batch.columns[AGE] > 0) if AGE in batch.columns else torch.zeros_like(batch.mask)
        sampled_under = torch.where(recorded, batch.behaviour_logprob, batch.old_logprob)
        ratio = token_ratio(batch.logprob, sampled_under)
        start = token_ratio(batch.old_logprob, sampled_under)
        low, high = start - self.settings.clip_low, start + self.settings.clip_high
        gain = torch.minimum(ratio * batch.advantage, ratio.clamp(low, high) * batch.advantage)
        metrics = ratio_metrics(ratio, batch) | {
            "clip/low": measured((batch.advantage < 0) & (ratio < low), batch.mask),
            "clip/high": measured((batch.advantage > 0) & (ratio > high), batch.mask),
            "mix/recorded": measured(recorded, batch.mask),
            "mix/start_ratio": measured(start, recorded),
        }
        return -gain, metrics

    def beside(self, batch: Batch, metrics: Metrics) -> Float[Tensor, "R L"]:
        how = self.settings.kl_convex
        loss = super().beside(batch, metrics)
        if how.coefficient and batch.reference_logprob is not None:
            share = how.share(self.steps)
            reference = kl_estimate(batch.logprob, batch.reference_logprob, how.estimator)
            before = kl_estimate(batch.logprob, batch.old_logprob, how.estimator)
            convex = share * reference + (1 - share) * before
            metrics["kl/convex"] = measured(convex, batch.mask)
            metrics["kl/reference_share"] = measured(torch.full_like(convex, share), batch.mask)
            loss = loss + how.coefficient * convex
        return loss

    def observe(self, metrics: Mapping[str, float]) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("objective.mix-policy", given=state, needed=("steps",))
        self.steps = state["steps"]
