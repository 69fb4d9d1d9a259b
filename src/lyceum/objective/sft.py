"""Fine-tuning: the cross-entropy of demonstrations."""

from __future__ import annotations

from typing import Literal

from lyceum.core.types import Batch, Metrics, Objective, Origin
from lyceum.objective.base import Aggregate, Aggregation, clean, measured
from lyceum.utils.lazy_imports import Tensor


class SFT(Aggregation):
    """Each demonstrated token's negative log-probability; advantages are not read."""

    kind: Literal["sft"] = "sft"

    def build(self) -> Objective:
        return CrossEntropy(self)


class CrossEntropy:
    def __init__(self, settings: SFT) -> None:
        self.columns = self.needs = frozenset[str]()
        self.aggregate: Aggregate = settings.aggregate
        self.constant = settings.constant
        self.origins: tuple[Origin, ...] = (Origin.TEACHER,)
        self.zero_advantage_is_zero = False

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        return -(batch.weight * batch.logprob).sum(), {"nll": measured(-batch.logprob, batch.mask)}
