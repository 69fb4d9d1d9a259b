"""A stage's credit and objective, and what they need of the learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lyceum.core.types import Credit, Objective

if TYPE_CHECKING:
    from lyceum.stages.offline import Offline
    from lyceum.stages.online import Online


@dataclass(frozen=True)
class Method:
    """What turns a forest into a loss."""

    credit: Credit
    objective: Objective

    @classmethod
    def of(cls, stage: Online | Offline) -> Method:
        return cls(stage.credit.build(), stage.objective.build())

    @property
    def columns(self) -> frozenset[str]:
        """Token columns that are added to the forest before credit."""
        return self.objective.columns | self.credit.needs

    @property
    def needs(self) -> frozenset[str]:
        """All that the learner is built for, frozen models among it."""
        frozen = frozenset(name for reduction in self.objective.reductions for name in reduction.models)
        return self.columns | self.objective.needs | self.credit.measures | frozen

    def reads_reference(self, stage: Online | Offline) -> bool:
        """Whether something of the stage reads the reference."""
        names = self.needs.union(*(part.of_models for part in stage.composition().components()))
        return bool(names & {"reference", "reference_logprob"})
