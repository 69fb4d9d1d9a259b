"""Every task equally often, in a new order for each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lyceum.core.component import require_keys
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import require_same_tasks, require_tasks, task_index
from lyceum.models.policy import Policy


class Uniform(CurriculumSettings):
    """Epochs over the tasks, each in another order."""

    kind: Literal["uniform"] = "uniform"

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return UniformCurriculum(source, seed=seed)


class UniformCurriculum:
    """Draw number k of a run is a function of (seed, k), so that its whole state is its position."""

    def __init__(self, source: TaskSource, *, seed: int) -> None:
        require_tasks(source)
        self.source = source
        self.seed = seed
        self.position = 0

    def draw(self, n: int) -> list[Task]:
        first, size = self.position, len(self.source)
        self.position += n
        return [self.source[task_index(self.seed, k, size)] for k in range(first, self.position)]

    def observe(self, trees: Sequence[Tree]) -> None:
        """Outcomes are not used."""

    def weight(self, tree: Tree) -> float:
        return 1.0

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "position": self.position, "tasks": len(self.source)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum.uniform", given=state, needed=self.state_dict())
        require_same_tasks(state["tasks"], self.source)
        self.seed, self.position = state["seed"], state["position"]
