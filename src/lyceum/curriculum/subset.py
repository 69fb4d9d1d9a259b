"""Only some categories, all equally often: the draws of one stage of an easy-to-hard curriculum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.settings import CurriculumSettings
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import TasksByCategory, Unweighted
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError, nearest


class Subset(CurriculumSettings):
    """The tasks of the named categories in turn."""

    kind: Literal["subset"] = "subset"
    by: str = "level"
    """Column that names a task's category, or ``provenance``."""
    only: tuple[str | Annotated[int, Field(le=(1 << 63) - 1)] | float, ...] = Field(min_length=1)
    """The categories to draw from."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return SubsetCurriculum(self, source, seed=seed)

    def check_tasks(self, source: TaskSource) -> None:
        """Raise RecipeError where the tasks have no such category."""
        self.names(TasksByCategory(source, by=self.by, seed=0))

    def names(self, tasks: TasksByCategory) -> list[str]:
        wanted = [str(name) for name in self.only]
        unknown = [name for name in wanted if name not in tasks.names]
        if unknown:
            raise RecipeError(
                f"curriculum.only: got {unknown[0]!r}, which no task has in column {self.by!r}"
                f"{nearest(unknown[0], tasks.names)}; allowed: {', '.join(tasks.names)}"
            )
        return wanted


class SubsetCurriculum(Unweighted):
    """Cycles through the categories; its state is its position."""

    def __init__(self, settings: Subset, source: TaskSource, *, seed: int) -> None:
        self.tasks = TasksByCategory(source, by=settings.by, seed=seed)
        self.names = settings.names(self.tasks)
        self.drawn = 0

    def draw(self, n: int) -> list[Task]:
        first, self.drawn = self.drawn, self.drawn + n
        return [self.tasks.take(self.names[k % len(self.names)]) for k in range(first, self.drawn)]

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "tasks": self.tasks.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum.subset", given=state, needed=self.state_dict())
        self.drawn = int(state["drawn"])
        self.tasks.load_state_dict(state["tasks"])
