"""An online curriculum from the agent's own results: failed tasks are changed, and drawn where they are neither easy
nor hopeless (AutoGLM).

Source: AutoGLM, arXiv:2411.00820 (self-evolving online curriculum), which follows WebRL, arXiv:2411.02337.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lyceum.core.component import of_kind, slot
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import Around
from lyceum.models.policy import Policy
from lyceum.papers.autoglm._app import BUTTONS, mutated
from lyceum.papers.autoglm.environment_app import check_app
from lyceum.papers.autoglm.guidance_planner_grounder import Sessions
from lyceum.papers.autoglm.tasks_app import made
from lyceum.utils.numbers import mean

PREDICTED = "predicted"
"""Column of a new task: how often it was expected to succeed."""


class EvolvingGoals(CurriculumSettings):
    """Tasks drawn give way to new ones, each a task that failed earlier with one goal changed, added or left out, whose
    predicted success is between ``harder`` and ``easier``."""

    kind: Literal["evolving-goals"] = "evolving-goals"
    share: float = Field(default=0.5, ge=0, le=1)
    """Share of the drawn tasks that new ones take the place of, where one passes."""
    attempts: int = Field(default=8, ge=1, le=64)
    """Changes that are tried; the first that passes is drawn."""
    harder: float = Field(default=0.05, ge=0, le=1)
    """Predicted success below which a task is hopeless."""
    easier: float = Field(default=0.75, ge=0, le=1)
    """Predicted success above which a task is easy."""
    most: int = Field(default=4, ge=1, le=len(BUTTONS) - 1)
    """Maximum goals of a new task."""
    rate: float = Field(default=0.2, gt=0, le=1)
    """Weight of a new result in each goal's running mean."""
    pool: int = Field(default=64, ge=1)
    """Failed tasks that may be changed, the last ones."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Curriculum that draws the tasks."""

    @model_validator(mode="after")
    def _some_tasks_pass(self) -> EvolvingGoals:
        if self.harder >= self.easier:
            raise ValueError(f"harder: got {self.harder:g} with easier {self.easier:g}; allowed: less than it")
        return self

    def check_tasks(self, source: TaskSource) -> None:
        check_app("curriculum.evolving-goals", source)

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return EvolvingGoalsCurriculum(self, self.draws.build(source, seed=seed, policy=policy), seed=seed)


class EvolvingGoalsCurriculum(Around):
    """Its state, beside that of the draws: the pool of failed tasks' goals, how often each goal is reached, and how
    many tasks were drawn."""

    def __init__(self, settings: EvolvingGoals, inner: Curriculum, *, seed: int) -> None:
        super().__init__(inner)
        self.settings, self.seed = settings, seed
        self.pool: list[str] = []
        self.reached = dict.fromkeys(BUTTONS, 0.5)
        self.drawn = 0
        self.rejected = {"easy": 0, "hopeless": 0}  # from a step's draw to its outcomes
        self._metrics: dict[str, float] = {}

    def draw(self, n: int) -> list[Task]:
        return [self.evolved(task) or task for task in super().draw(n)]

    def evolved(self, task: Task) -> Task | None:
        """The new task in the place of a drawn one; None where that stays."""
        of = self.settings
        rng = Random(f"evolving-goals/{self.seed}/{self.drawn}")
        self.drawn += 1
        if not self.pool or rng.random() >= of.share:
            return None
        failed = rng.choice(self.pool)
        for _ in range(of.attempts):
            goals = mutated(rng, failed, of.most)
            predicted = predicted_success([self.reached[goal] for goal in goals])
            if of.harder <= predicted <= of.easier:
                new = made(f"app/evolved/{self.seed}/{self.drawn}", goals)
                return Task(new.id, new.messages, goals, {**new.columns, PREDICTED: predicted}, "app-evolved")
            self.rejected["easy" if predicted > of.easier else "hopeless"] += 1
        return None

    def observe(self, trees: Sequence[Tree]) -> None:
        predicted: list[float] = []
        found: list[float] = []
        drawn: list[float] = []
        for tree in trees:
            solved = [one for sessions in tree.notes(Sessions) for one in sessions.solved]
            if not solved:
                continue
            success, goals = mean(solved), str(tree.task.columns["goals"])
            for goal in goals:
                each = success ** (1 / len(goals))
                self.reached[goal] += self.settings.rate * (each - self.reached[goal])
            self.pool = [other for other in self.pool if other != goals]
            if success < 0.5:
                self.pool.append(goals)
            expected = tree.task.columns.get(PREDICTED)
            if expected is None:
                drawn.append(success)
            else:
                predicted.append(expected)
                found.append(success)
        self.pool = self.pool[-self.settings.pool :]
        rejected, self.rejected = self.rejected, dict.fromkeys(self.rejected, 0)
        self._metrics = {
            "tasks/new": len(found),
            "pool/failed": len(self.pool),
            **{f"rejected/{reason}": times for reason, times in rejected.items()},
            **({"success/drawn": mean(drawn)} if drawn else {}),
        }
        if found:
            error = mean([abs(one - other) for one, other in zip(predicted, found, strict=True)])
            self._metrics |= {
                "success/new": mean(found),
                "success/predicted": mean(predicted),
                "success/error": error,
            }
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        return {**self._metrics, **super().metrics()}

    def state_dict(self) -> dict[str, Any]:
        own = {"pool": list(self.pool), "reached": dict(self.reached), "drawn": self.drawn}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.pool, self.reached, self.drawn = list(state["pool"]), dict(state["reached"]), int(state["drawn"])


def predicted_success(reached: Sequence[float]) -> float:
    """How often a task is expected to succeed whose goals are each reached this often, on their own: the product.

    Args:
        reached: of its goals, each in 0 .. 1. A session of k goals that succeeds in a share s counts s^(1/k) for each.
    """
    return math.prod(reached)
