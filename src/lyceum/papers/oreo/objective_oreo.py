"""OREO: policy and value learn together that the soft Bellman equation holds along graded trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import BaseObjective, clean, measured
from lyceum.objective.kl import kl_estimate
from lyceum.utils.lazy_imports import Tensor


class OREO(ObjectiveSettings):
    """Squared error of the soft Bellman equation to each trajectory's end, for the value head and for the policy;
    single trajectories, and advantages are not read."""

    refuses: ClassVar = ("value-targets",)
    gives: ClassVar = ("value-head",)

    kind: Literal["oreo"] = "oreo"
    beta: float = Field(0.03, ge=0, le=1e6)
    """KL coefficient of the soft reward, in reward units per nat; 0 fits the values alone."""
    kl: float = Field(0.1, ge=0)
    """Weight of KL(policy || reference) beside the policy's error, in loss units per nat."""
    value_weight: float = Field(1.0, ge=0)
    """Weight of the value head's error (no unit)."""

    def build(self) -> Objective:
        return SoftBellman(self)


class SoftBellman(BaseObjective):
    def __init__(self, settings: OREO) -> None:
        columns = frozenset({"reference_logprob"})
        super().__init__("sequence", columns=columns, needs=frozenset({"value"}), skips=False)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        return StepPlan(self.weights(mask, updates), mask.any(1), label=forest.reward.float())

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        if batch.label is None or batch.value is None or batch.reference_logprob is None:
            raise ValueError("objective.kind 'oreo' needs outcomes, values and reference_logprob of the batch")
        policy, value = bellman_errors(
            self.settings.beta * (batch.logprob - batch.reference_logprob),
            batch.value,
            batch.label,
        )
        kl = kl_estimate(batch.logprob, batch.reference_logprob, "k3")
        metrics = {
            "oreo/error": measured(value, batch.mask),
            "oreo/value": measured(batch.value, batch.mask),
            "kl/reference": measured(kl, batch.mask),
        }
        loss = policy + self.settings.value_weight * value + self.settings.kl * kl
        return (batch.weight * loss).sum(), metrics


def bellman_errors(
    soft: Float[Tensor, "R L"], value: Float[Tensor, "R L"], reward: Float[Tensor, " R"]
) -> tuple[Float[Tensor, "R L"], Float[Tensor, "R L"]]:
    """Each token's squared error for the policy and for the value head.

        e_t = V(s_t) + sum over i >= t of c_i - r        c_i = beta log(pi(y_i) / pi_ref(y_i))
        policy: e_t^2 with a gradient through c_t alone;  value: e_t^2 with a gradient through V(s_t) alone

    Args:
        soft: c, in the reward's unit, with gradient; 0 outside the mask.
        value: V before each token, in the reward's unit, with gradient.
        reward: r of each trajectory, paid at its end.
    Source:
        Wang et al., arXiv:2412.16145; authors' code jwhj/OREO (``pcl_trainer.py``, ``loss`` and ``dro_loss``).
    """
    from_here = soft.flip(1).cumsum(1).flip(1).detach()
    after = from_here - soft.detach()
    reward = reward.to(value)[:, None]
    return (value.detach() + after + soft - reward).square(), (value + from_here - reward).square()
