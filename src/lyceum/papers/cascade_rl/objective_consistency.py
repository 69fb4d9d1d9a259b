"""Consistency of rates (ViCO): the answers under compressed pictures are drawn to the reference's under whole ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from jaxtyping import Float, Int

from lyceum.core.types import Batch, FrozenName, Metrics, Objective, Origin, Reduction
from lyceum.objective.base import Aggregation, BaseObjective, clean, measured
from lyceum.utils.lazy_imports import Tensor

KL = "rate_kl"


class RateConsistency(Aggregation):
    """Each demonstrated token's KL(reference || policy), over the vocabulary."""

    gives: ClassVar = ("imitation",)
    requires: ClassVar = ("demonstrations",)

    kind: Literal["consistency"] = "consistency"

    def build(self) -> Objective:
        return ConsistentRates(
            self.aggregate, self.constant, origins=(Origin.TEACHER,), reductions=(ToReference(),), skips=False
        )


class ConsistentRates(BaseObjective):
    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        kl = batch.columns[KL]
        return (batch.weight * kl).sum(), {"rate/kl": measured(kl, batch.mask)}


class ToReference(Reduction):
    """KL(q || p) of each token, in nats, of the reference's distribution q and the policy's p.

    Source:
        InternVL3.5, arXiv:2508.18265, consistency training of ViCO.
    """

    @property
    def models(self) -> frozenset[FrozenName]:
        return frozenset(("reference",))

    @property
    def old(self) -> bool:
        return False

    def __call__(
        self, logits: Float[Tensor, "k V"], token: Int[Tensor, " k"], frozen: Mapping[FrozenName, Float[Tensor, "k V"]]
    ) -> dict[str, Float[Tensor, " k"]]:
        policy, reference = logits.log_softmax(-1), frozen["reference"].log_softmax(-1)
        return {KL: (reference.exp() * (reference - policy)).sum(-1)}
