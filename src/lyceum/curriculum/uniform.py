"""Every task equally often, in a new order for each epoch."""

from __future__ import annotations

from typing import Literal

from lyceum.core.settings import CurriculumSettings
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import FromSource, task_index
from lyceum.models.policy import Policy


class Uniform(CurriculumSettings):
    """Epochs over the tasks, each in another order."""

    kind: Literal["uniform"] = "uniform"

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return UniformCurriculum(source, seed=seed)


class UniformCurriculum(FromSource):
    """Draw number k of a run is a function of (seed, k), so that its whole state is its position."""

    kept = ("position",)

    def __init__(self, source: TaskSource, *, seed: int) -> None:
        super().__init__(source, seed=seed)
        self.position = 0

    def draw(self, n: int) -> list[Task]:
        first, size = self.position, len(self.source)
        self.position += n
        return [self.source[task_index(self.seed, k, size)] for k in range(first, self.position)]
