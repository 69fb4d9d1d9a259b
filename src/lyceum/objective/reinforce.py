"""The plain policy gradient: log-probability times advantage."""

from __future__ import annotations

from typing import ClassVar, Literal

from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import PolicyObjective, Terms
from lyceum.utils.lazy_imports import Tensor


class ReinforceLoss(Terms):
    """Each token's log-probability times its advantage; valid where every batch gets one update.

    -A * logprob        Williams 1992, doi:10.1007/BF00992696
    """

    gives: ClassVar = ("episode-weights",)

    kind: Literal["reinforce"] = "reinforce"

    def build(self) -> Objective:
        return PolicyObjective(self, self.surrogate)

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        return -batch.advantage * batch.logprob, {}
