"""What else may happen in a step of the online loop, beside the update on the step's groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.group import Group
from lyceum.core.settings import LearnerSettings, ObjectiveSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Learner, Stateful, StepMetrics
from lyceum.training.stages.session import Session


class Auxiliary(Stateful, Protocol):
    """A part of an online step around the update on its groups.

    Attributes:
        learner: what updates the weights.
        updated: whether it learnt something of its own at the last step.
    """

    learner: Learner
    updated: bool

    def before(self, forest: Forest) -> Mapping[str, float]:
        """Called with the forest that is about to be trained, which has rows; returns metrics."""
        return {}

    async def after(self, groups: Sequence[Group], metrics: StepMetrics) -> StepMetrics:
        """Called after the update with the step's groups and metrics; returns these with its own added."""
        return metrics


class Imitation(Auxiliary):
    """Fine-tuning steps of an optimiser of their own.

    Args:
        name: its metrics are ``NAME/METRIC``, and its state is the stage's ``NAME``.
        total_steps: of the stage.
    """

    def __init__(
        self, name: str, objective: ObjectiveSettings, learner: LearnerSettings, session: Session, *, total_steps: int
    ) -> None:
        self.name, self.session = name, session
        self.objective = objective.build()
        self.learner = learner.build(session.policy, total_steps=total_steps, needs=frozenset())
        self.updated = False

    def imitate(self, trees: Sequence[Tree], metrics: StepMetrics) -> StepMetrics:
        """Take one step on demonstrations; returns the metrics together with its own."""
        self.updated = True
        return together(metrics, self.session.imitate(self.learner, trees, self.objective), self.name)

    def state_dict(self) -> dict[str, Any]:
        return {"learner": self.learner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys(f"stage.{self.name}", given=state, needed=self.state_dict())
        self.learner.load_state_dict(state["learner"])


def together(metrics: StepMetrics, tuned: Mapping[str, Any], name: str) -> StepMetrics:
    """A step's metrics with those of a fine-tuning step: tokens add up, the rest is kept apart, as ``NAME/METRIC``."""
    added = ("tokens_trained", "row_tokens_trained", "seconds/train")
    own = {f"{name}/{each}": tuned[each] for each in tuned if each not in (*added, "tokens_per_second")}
    return {**metrics, **own, **{each: metrics.get(each, 0) + tuned.get(each, 0) for each in added}}
