"""The scene of the tasks ``routes``: what is seen from above after each turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Task, TaskSource
from lyceum.papers.srgpo.tasks_routes import shown, walked
from lyceum.utils.errors import RecipeError


class RoutesEnvironment(EnvironmentSettings):
    """Answers moves with a picture of where they lead (tasks ``routes``); being at the target ends the trajectory and
    earns 1. A turn is its moves, usually one; one that moves nothing is counted as failed."""

    kind: Literal["routes"] = "routes"

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if not source[0].columns.keys() >= {"start", "target", "marks"}:
            raise RecipeError("environment.routes: the tasks have no ways; allowed: tasks 'routes'")

    def build(self) -> Environment[Walk]:
        return WalkEnvironment()


@dataclass(frozen=True)
class Walk:
    """A task and the cell in which its disc stands."""

    task: Task
    place: int


class WalkEnvironment:
    def reset(self, task: Task) -> Walk:
        return Walk(task, task.columns["start"])

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Walk:
        begin = self.reset(task)
        return replace(begin, place=_after(begin, "".join(said for said, _ in exchanges)))

    def key_of(self, state: Walk) -> str:
        return str(state.place)

    async def step(self, state: Walk, turn: Node, said: str, context: GradingContext) -> Observation[Walk]:
        now = replace(state, place=_after(state, said))
        there = now.place == state.task.columns["target"]
        messages = () if there else ({"role": "user", "content": [shown(state.task, now.place)]},)
        moved = now.place != state.place
        return Observation(
            now, messages, reward=float(there), end=there, key=self.key_of(now), calls=1, failed=int(not moved)
        )


def _after(state: Walk, moves: str) -> int:
    return [state.place, *walked(state.task, state.place, moves)][-1]
