"""The house of the tasks ``rooms``: what one sees after each command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Task, TaskSource
from lyceum.tasks.rooms import House, HouseState, house_of, legal, played, text_of
from lyceum.utils.errors import RecipeError


class RoomsEnvironment(EnvironmentSettings):
    """Answers commands with what one sees then (tasks ``rooms``); fetching the thing earns 1 and ends the trajectory.

    A turn is a command. One that is not possible changes nothing and is counted as failed. A state's key is its text.
    """

    kind: Literal["rooms"] = "rooms"

    def check_tasks(self, source: TaskSource) -> None:
        if not source[0].columns.keys() >= {"doors", "locked"}:
            raise RecipeError("environment.rooms: the tasks have no houses; allowed: tasks 'rooms'")

    def build(self) -> Environment[Visit]:
        return HouseEnvironment()


@dataclass(frozen=True)
class Visit:
    house: House
    place: HouseState


class HouseEnvironment:
    def reset(self, task: Task) -> Visit:
        house = house_of(task)
        return Visit(house, house.begin)

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Visit:
        house = house_of(task)
        return Visit(house, played(house, [said for said, _ in exchanges]))

    def key_of(self, state: Visit) -> str:
        return text_of(state.house, state.place)

    async def step(self, state: Visit, turn: Node, said: str, context: GradingContext) -> Observation[Visit]:
        after = legal(state.house, state.place).get(said.strip())
        now = replace(state, place=after or state.place)
        fetched = now.place.stage == "fetched"
        text = self.key_of(now)
        messages = () if fetched else ({"role": "user", "content": text},)
        return Observation(
            now, messages, reward=float(fetched), end=fetched, key=text, calls=1, failed=int(after is None)
        )
