"""Tasks of middling difficulty, by the accuracies that an earlier stage measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from lyceum.core.component import PathText, require_keys
from lyceum.core.settings import Composition, CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import success, task_index
from lyceum.models.policy import Policy
from lyceum.tasks.base import HintsLeak
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.numbers import mean
from lyceum.utils.terminal import quoted


class Middling(CurriculumSettings):
    """Epochs over the tasks that an earlier stage sampled and solved some of the time.

    Source: InternVL3.5's Cascade RL, arXiv:2508.18265: the online stage's queries are those with an accuracy of 0.2 to
    0.8 in the rollouts of the offline stage's data (card of the data set MMPR-Tiny; whether inclusive is not said).
    """

    kind: Literal["middling"] = "middling"
    from_stage: str | None = None
    """Name of the stage whose trees are read: an earlier one of this run, which was offline or ran with
    ``trees_every``; null, with ``path``: all stages of that run."""
    path: PathText | None = None
    """Folder of the run that recorded them; null: this run."""
    low: float = Field(default=0.2, ge=0, le=1)
    """Minimum accuracy of a task, inclusive; of rewards without a verdict, the mean."""
    high: float = Field(default=0.8, ge=0, le=1)
    """Maximum accuracy of a task, inclusive."""

    @model_validator(mode="after")
    def _can_hold(self) -> Middling:
        if self.low > self.high:
            raise ValueError(f"low: got {self.low}, but high is {self.high}; allowed: at most that")
        if self.from_stage is None and self.path is None:
            raise ValueError("got neither from_stage nor path; allowed: an earlier stage, a run's folder, or both")
        return self

    def check(self, stage: Composition) -> list[str]:
        return [] if self.path is not None else stage.without_trees("curriculum.from_stage", self.from_stage or "")

    def check_tasks(self, source: TaskSource) -> None:
        """Raise RecipeError where another run has no such tasks."""
        if self.path is not None:
            found, measured = self.tasks()
            if not found:
                raise RecipeError(self.none_of(measured))

    def none_of(self, measured: int) -> str:
        """The line that says that there is no task within the bounds."""
        of = "the run" if self.from_stage is None else f"stage {quoted(self.from_stage)}"
        return (
            f"curriculum: none of the {measured} tasks that {of} sampled has an accuracy from {self.low:g} to "
            f"{self.high:g}; allowed: wider bounds low and high, or more tasks in that stage"
        )

    def handed_on(self, run: Path) -> Self:
        return self if self.path is not None else self.model_copy(update={"path": str(run)})

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return MiddlingCurriculum(self, seed=seed)

    def tasks(self) -> tuple[list[Task], int]:
        """The tasks, in the order in which they were first sampled, and how many were measured.

        Raises:
            RecipeError: there are no trees.
        """
        assert self.path is not None
        from lyceum.run.stage_trees import tree_files  # here: imports pyarrow
        from lyceum.run.trees import read_trees

        rates: dict[str, list[float]] = {}
        tasks: dict[str, Task] = {}
        for file in tree_files(Path(self.path), self.from_stage, "curriculum"):
            for tree in (group.tree for group in read_trees(file).groups):
                if (rate := success(tree)) is not None:
                    rates.setdefault(tree.task.id, []).append(rate)
                    # What a curriculum or a guide of that stage wrote on a task is not handed on.
                    notes = {kind: note for kind, note in tree.task.notes.items() if kind == HintsLeak.kind}
                    own = replace(tree.task, samples=None, notes=notes)
                    tasks.setdefault(tree.task.id, own)
        found = [tasks[name] for name, of in rates.items() if self.low <= mean(of) <= self.high]
        return found, len(rates)


class MiddlingCurriculum:
    """Draw number k is a function of (seed, k): its whole state is its position."""

    def __init__(self, settings: Middling, *, seed: int) -> None:
        self.tasks, self.measured = settings.tasks()
        if (
            not self.tasks
        ):  # of this run's own stage, which has trained by now: the run failed, its recipe was not refused
            raise RunError(settings.none_of(self.measured))
        self.seed, self.position = seed, 0

    def draw(self, n: int) -> list[Task]:
        size, first = len(self.tasks), self.position
        self.position += n
        return [self.tasks[task_index(self.seed, k, size)] for k in range(first, self.position)]

    def observe(self, trees: Sequence[Tree]) -> None:
        """Outcomes are not used."""

    def weight(self, tree: Tree) -> float:
        return 1.0

    def metrics(self) -> dict[str, float]:
        """``tasks/draws`` is how often each task was drawn so far, on average: far above 1 the tasks run dry."""
        size = len(self.tasks)
        return {
            "tasks/middling": float(size),
            "tasks/measured": float(self.measured),
            "tasks/draws": self.position / size,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "position": self.position, "tasks": len(self.tasks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum.middling", given=state, needed=self.state_dict())
        if state["tasks"] != len(self.tasks):
            raise RecipeError(
                f"curriculum: got {len(self.tasks)} tasks, but the saved run had {state['tasks']}; allowed: the trees "
                "that the run began with, or a new run"
            )
        self.seed, self.position = int(state["seed"]), int(state["position"])
