"""SEC, the self-evolving curriculum: a non-stationary bandit over categories, with |advantage| as reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from lyceum.core.types import Curriculum, TaskSource
from lyceum.curriculum._bandit import CategoryBandit, CategorySettings, softmax
from lyceum.models.policy import Policy


class SelfEvolving(CategorySettings):
    """Categories drawn by the recent learning signal of their tasks: Boltzmann over values of mean |advantage|.

    A category without a graded rollout in a step keeps its value. The paper's update takes r_t(c), the mean |advantage|
    of the tasks drawn from c, which is undefined for it; so does an author's later code (ServiceNow's PipelineRL,
    pipelinerl/curriculum/bandit.py). The released one (auto_curriculum/priority.py) takes 0 for it instead: a rarely
    drawn category loses the share alpha of its value in each step without it, and is drawn even less.
    """

    kind: Literal["self-evolving"] = "self-evolving"
    learning_rate: float = Field(0.5, gt=0, le=1)
    """Learning rate alpha of a category's value towards its mean |advantage| in a step (no unit)."""
    temperature: float = Field(0.3, gt=0)
    """Temperature of the Boltzmann distribution over values, in their unit (mean |advantage|); smaller is greedier."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return SelfEvolvingCurriculum(self, source, seed=seed)


class SelfEvolvingCurriculum(CategoryBandit):
    """Its state: a value for each category, 0 at first."""

    def __init__(self, settings: SelfEvolving, source: TaskSource, *, seed: int) -> None:
        super().__init__(source, by=settings.by, seed=seed)
        self.settings = settings
        self.value = dict.fromkeys(self.tasks.names, 0.0)

    @property
    def shares(self) -> Float[np.ndarray, " category"]:
        return softmax(np.array([self.value[name] for name in self.tasks.names]), self.settings.temperature)

    def learn(self, of_category: Mapping[str, list[tuple[float, int]]]) -> None:
        for name in self.value.keys() & of_category.keys():  # the others have no r(c)
            rollouts = sum(count for _, count in of_category[name])
            gained = sum(advantage * count for advantage, count in of_category[name]) / rollouts
            self.value[name] = td_update(self.value[name], gained, self.settings.learning_rate)

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), **{f"value/{name}": value for name, value in self.value.items()}}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "value": dict(self.value)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.value = {name: float(state["value"][name]) for name in self.tasks.names}


def td_update(value: float, gained: float, learning_rate: float) -> float:
    """TD(0) of a bandit, which has no next state:  Q(c) <- Q(c) + alpha (r(c) - Q(c)).

    Args:
        value: Q(c), in the unit of ``gained``.
        gained: r(c), the mean |advantage| over the rollouts of category c in this step.
        learning_rate: alpha, in 0 .. 1.
    Source:
        Self-Evolving Curriculum for LLM Reasoning, arXiv:2505.14970, section 2.2 (equation 1) and section 2.3
        (equation 3: r(c)).
    """
    return value + learning_rate * (gained - value)
