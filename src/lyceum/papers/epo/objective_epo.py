"""EPO: an entropy bonus, and a band around the entropy of the steps before that a token's entropy should stay in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from jaxtyping import Float, Int
from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.types import Batch, Credited, Metrics, Objective, State, StepPlan
from lyceum.objective.base import PolicyObjective, measured
from lyceum.objective.ppo_clip import PPOClip
from lyceum.utils.lazy_imports import Tensor
from lyceum.utils.numbers import mean


class EPO(PPOClip):
    """PPO's clipped surrogate with an entropy bonus that is smoothed over the steps."""

    kind: Literal["epo"] = "epo"  # pyright: ignore[reportIncompatibleVariableOverride]
    entropy_coefficient: float = 0.001
    """Entropy bonus per token, in loss units per nat; the smoothing is multiplied by it too."""
    band_low: float = Field(0.0, ge=0)
    """Lower end of the band, as a multiple of the mean entropy of earlier steps."""
    band_high: float = Field(2.0, gt=0)
    """Upper end of the band, as a multiple of that mean."""
    penalty: float = Field(0.1, ge=0)
    """Penalty of a nat outside the band, in nats of the bonus; 0 is the plain bonus."""
    window: int | None = Field(None, ge=1)
    """Number of earlier steps that the mean is of; null: all."""
    phase_steps: int = Field(60, ge=1)
    """Number of steps over which the penalty's weight falls: slowly in the first half, fast in the second."""

    @model_validator(mode="after")
    def _band_is_one(self) -> EPO:
        if self.band_low >= self.band_high:
            raise ValueError(f"band_low: got {self.band_low}, but band_high is {self.band_high}; allowed: less than it")
        if self.entropy_coefficient <= 0:
            raise ValueError(
                f"entropy_coefficient: got {self.entropy_coefficient}; allowed: more than 0, or objective.kind "
                "'ppo-clip'"
            )
        return self

    def build(self) -> Objective:
        return SmoothedEntropy(self)


class SmoothedEntropy(PolicyObjective):
    """The mean entropy of each step so far, in nats per token."""

    def __init__(self, settings: EPO) -> None:
        super().__init__(settings, settings.surrogate, needs=frozenset({"old_logprob"}))
        self.settings = settings
        self.entropies: list[float] = []
        self.steps = 0

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        plan = super().plan(forest, credited, updates)
        if not self.entropies:
            return plan
        of = self.settings
        level = mean(self.entropies if of.window is None else self.entropies[-of.window :])
        weight = smoothing_weight(self.steps / of.phase_steps)
        thresholds = {"low": of.band_low * level, "high": of.band_high * level, "weight": weight}
        return replace(plan, thresholds=thresholds, counts={f"epo/{name}": x for name, x in thresholds.items()})

    def beside(self, batch: Batch, metrics: Metrics) -> Float[Tensor, "R L"]:
        loss = super().beside(batch, metrics)
        if not batch.thresholds or batch.entropy is None:
            return loss
        band = batch.thresholds
        distance = outside(batch.entropy, band["low"], band["high"])
        metrics["epo/outside"] = measured(distance > 0, batch.mask)
        return loss + self.settings.entropy_coefficient * band["weight"] * self.settings.penalty * distance

    def observe(self, metrics: Mapping[str, float]) -> None:
        self.steps += 1
        if "entropy" in metrics:  # of the trained tokens, where there were any
            self.entropies.append(metrics["entropy"])

    def state_dict(self) -> State:
        return {"entropies": list(self.entropies), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("objective.epo", given=state, needed=self.state_dict())
        self.entropies, self.steps = list(state["entropies"]), state["steps"]


def outside(entropy: Float[Tensor, "R L"], low: float, high: float) -> Float[Tensor, "R L"]:
    """Distance of each token's entropy from the band, in nats; 0 within it.

        max(0, low - H) + max(0, H - high)

    Source:
        The band is EPO's, arXiv:2509.22576 (entropy smoothing), low and high multiples of the mean entropy of earlier
        steps. Its code (``generate_entropy_penalty``) gives a token outside a constant, which has no gradient: the
        distance has one, that points back into the band.
    """
    return (low - entropy).clamp(min=0) + (entropy - high).clamp(min=0)


def smoothing_weight(progress: float) -> float:
    """Weight of the penalty at a fraction of the phases.

        first half:  1 - 0.2 (1 - exp(-2 p))        second half:  0.8 exp(-3 p)        p: progress in that half

    Source:
        EPO's code, ``_calculate_epoch_based_entropy_weight``.
    """
    progress = min(progress, 1.0)
    if progress <= 0.5:
        return 1 - 0.2 * (1 - math.exp(-2 * 2 * progress))
    return 0.8 * math.exp(-3 * (2 * progress - 1))
