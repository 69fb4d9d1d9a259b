"""A keeper that may be talked round: a scripted, harmless opponent with a rule that nobody tells (``keepers``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Task, TaskSource
from lyceum.papers.dialtree.tasks_keepers import APPROACHES, GIVES_WAY, replied
from lyceum.utils.errors import RecipeError

COUNTED = ("gave_way", "refused")


class KeeperDialogue(EnvironmentSettings):
    """Answers the policy's approaches; a dialogue in which it gives way earns 1 and ends, and so does one in which
    something else than an approach is said, for nothing."""

    kind: Literal["keeper"] = "keeper"

    @property
    def counted(self) -> tuple[str, ...]:
        return COUNTED

    def check_tasks(self, source: TaskSource) -> None:
        if "ways" not in source[0].columns:
            raise RecipeError("environment.keeper: the tasks have no keeper to talk round; allowed: tasks 'keepers'")

    def build(self) -> Environment[Talked]:
        return KeeperEnvironment()


@dataclass(frozen=True)
class Talked:
    """The ways to talk this keeper round, and the approach that it hesitates after; None where it does not."""

    level: int
    ways: tuple[tuple[str, str], ...]
    before: str | None = None


class KeeperEnvironment:
    def reset(self, task: Task) -> Talked:
        return Talked(task.columns["level"], tuple((str(one), str(other)) for one, other in task.columns["ways"]))

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Talked:
        state = self.reset(task)
        for said, _ in exchanges:
            state = Talked(state.level, state.ways, replied(list(state.ways), state.before, said.strip())[1])
        return state

    async def step(self, state: Talked, turn: Node, said: str, context: GradingContext) -> Observation[Talked]:
        approach = said.strip()
        if len(approach) != 1 or approach not in APPROACHES:
            return Observation(state, end=True, counts={"gave_way": 0, "refused": 0})
        answer, before = replied(list(state.ways), state.before, approach)
        after = Talked(state.level, state.ways, before)
        if answer == GIVES_WAY:
            return Observation(after, reward=1.0, end=True, counts={"gave_way": 1, "refused": 0})
        refused = int(before is None)
        messages = ({"role": "user", "content": answer},)
        return Observation(after, messages, key=f"{after.level}:{before}", counts={"gave_way": 0, "refused": refused})
