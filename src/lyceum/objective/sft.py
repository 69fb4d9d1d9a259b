"""Fine-tuning: the cross-entropy of demonstrations."""

from __future__ import annotations

from typing import ClassVar, Literal

from lyceum.core.types import Batch, Metrics, Objective, Origin
from lyceum.objective.base import Aggregation, BaseObjective, clean, measured
from lyceum.utils.lazy_imports import Tensor


class SFT(Aggregation):
    """Each demonstrated token's negative log-probability; advantages are not read."""

    gives: ClassVar = ("imitation",)
    requires: ClassVar = ("demonstrations",)

    kind: Literal["sft"] = "sft"

    def build(self) -> Objective:
        return CrossEntropy(self.aggregate, self.constant, origins=(Origin.TEACHER,), skips=False)


class CrossEntropy(BaseObjective):
    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        return -(batch.weight * batch.logprob).sum(), {"nll": measured(-batch.logprob, batch.mask)}
