"""Every task equally often, in a new order for each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lyceum.core.component import require_keys
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import epoch_order, require_same_tasks
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError


class Uniform(CurriculumSettings):
    """Epochs over the tasks, each in another order."""

    kind: Literal["uniform"] = "uniform"

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return UniformCurriculum(source, seed=seed)


class UniformCurriculum:
    """Draw number k of a run is a function of (seed, k), so that its whole state is its position."""

    def __init__(self, source: TaskSource, *, seed: int) -> None:
        if len(source) == 0:
            raise RecipeError("tasks: got an empty source; allowed: at least one task")
        self.source = source
        self.seed = seed
        self.position = 0

    def draw(self, n: int) -> list[Task]:
        drawn = [self.source[self._index(k)] for k in range(self.position, self.position + n)]
        self.position += n
        return drawn

    def _index(self, position: int) -> int:
        epoch, place = divmod(position, len(self.source))
        return int(epoch_order(self.seed, epoch, len(self.source))[place])

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
