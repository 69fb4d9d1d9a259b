"""A house to walk through: fetch a thing from a locked room, whose key lies in another one.

Each task is a house of its own. It says where thing and key are, not how the rooms lie: of them one sees the doors of
the room that one is in. The text of a state is equal where the state is equal, so that steps from the same state can be
compared (credit ``gigpo``). Environment ``rooms`` answers the commands::

    Fetch the lamp. It is in the attic, which is locked. The key is in the study.
    In the hall. Doors: kitchen, study.
    > go study
    In the study. Doors: hall, attic. The key is here.
    > take key
    In the study. Doors: hall, attic. You have the key.
    > open attic
    In the study. Doors: hall, attic. The attic is open.
    > go attic
    In the attic. Doors: study. The attic is open. The lamp is here.
    > take lamp

The level is the number of rooms. Worked episodes are those of somebody who knows what to do and mostly goes through the
first door that is listed: a model that imitates them has all that it needs, and habits that cost it most of the tasks.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Exchange, Grade, Grader, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, draw, levels_within

ROOMS = (
    "attic", "cellar", "chapel", "garden", "hall", "kitchen", "library", "pantry", "stable", "study", "tower",
    "workshop",
)  # fmt: skip
THINGS = ("crown", "flute", "lamp", "map", "ring", "sword")
KEY = "key"
MOST_DOORS = 3


class Rooms(TasksSettings):
    """Houses in which a thing is to be fetched from a locked room; the level is the number of rooms."""

    kind: Literal["rooms"] = "rooms"
    levels: tuple[int, ...] = (4, 5, 6, 7)
    """Numbers of rooms, 4 to 10; tasks cycle through them, so that every level has the same share."""
    wander: float = Field(0.6, ge=0, le=1)
    """Share of the commands of worked episodes that go through the first door listed, whatever there is to do."""
    turns: int = Field(16, ge=1)
    """Maximum commands of a worked episode, which may end there without the thing."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(4, 10, "numbers of rooms")

    def build(self, split: Split, seed: int) -> RoomsSource:
        return RoomsSource(self, split, seed)


class RoomsSource(GeneratedSource[Rooms]):
    """A house, with what is where, is always in the same split."""

    def __getitem__(self, index: int) -> Task:
        id, level = self.key(index), self.settings.levels[index % len(self.settings.levels)]
        return draw(id, self.split, lambda rng: make_task(id, rng, level), problem=_problem)

    def grader(self) -> Grader:
        return each(grade)

    def episode(self, task: Task) -> list[Exchange]:
        """Commands and what they are answered, to the end."""
        visitor = Visitor(house_of(task), random.Random(f"{task.id}/episode"))
        return visitor.episode(self.settings.wander, self.settings.turns)


@dataclass(frozen=True)
class House:
    """What does not change.

    Attributes:
        doors: of each room, the rooms behind its doors, as they are listed.
        start, key, locked: the rooms where one begins, where the key is, and where the thing is.
    """

    doors: dict[str, tuple[str, ...]]
    start: str
    key: str
    locked: str
    thing: str

    @property
    def begin(self) -> HouseState:
        return HouseState(self.start, "locked")


@dataclass(frozen=True)
class HouseState:
    """What changes: the room, and how far one is: ``locked``, then ``carried`` (the key), ``open`` (the locked room),
    ``fetched`` (the thing)."""

    room: str
    stage: Literal["locked", "carried", "open", "fetched"]


def make_task(id: str, rng: random.Random, level: int) -> Task | None:
    """A task; None where the drawn house has no way to the key but through the locked room."""
    house = drawn_house(rng, level)
    best = shortest(house)
    if best is None:
        return None
    columns: dict[str, Any] = {
        "level": level,
        "doors": {room: list(doors) for room, doors in house.doors.items()},
        "start": house.start,
        "key": house.key,
        "locked": house.locked,
        "thing": house.thing,
        "shortest": len(best),
    }
    asked = f"Fetch the {house.thing}. It is in the {house.locked}, which is locked. The key is in the {house.key}."
    message = {"role": "user", "content": f"{asked}\n{text_of(house, house.begin)}"}
    return Task(id, (message,), " ".join(best), columns, provenance="rooms")


def house_of(task: Task) -> House:
    columns = task.columns
    doors = {room: tuple(others) for room, others in columns["doors"].items()}
    return House(doors, columns["start"], columns["key"], columns["locked"], columns["thing"])


def drawn_house(rng: random.Random, rooms: int) -> House:
    """Rooms joined to a tree, and about one door in three rooms beside it; no room has more than three doors."""
    names = rng.sample(ROOMS, rooms)
    doors: dict[str, list[str]] = {name: [] for name in names}

    def join(one: str, other: str) -> None:
        doors[one].append(other)
        doors[other].append(one)

    def free(among: Sequence[str]) -> list[str]:
        return [name for name in among if len(doors[name]) < MOST_DOORS]

    for place, name in enumerate(names[1:], 1):
        join(name, rng.choice(free(names[:place])))
    for name in names:
        others = [other for other in free(names) if other != name and other not in doors[name]]
        if others and len(doors[name]) < MOST_DOORS and rng.random() < 0.2:
            join(name, rng.choice(others))
    for listed in doors.values():
        rng.shuffle(listed)
    start, key, locked = rng.sample(names, 3)
    return House({room: tuple(listed) for room, listed in doors.items()}, start, key, locked, rng.choice(THINGS))


def _problem(task: Task) -> str:
    columns = task.columns
    doors = sorted({tuple(sorted((room, other))) for room, others in columns["doors"].items() for other in others})
    return " ".join([columns["start"], columns["key"], columns["locked"], *("-".join(pair) for pair in doors)])


def text_of(house: House, place: HouseState) -> str:
    """What one sees: another text for each state of a house."""
    seen = [f"In the {place.room}.", f"Doors: {', '.join(house.doors[place.room])}."]
    if place.stage == "locked" and place.room == house.key:
        seen.append("The key is here.")
    if place.stage == "carried":
        seen.append("You have the key.")
    if place.stage == "open":
        seen.append(f"The {house.locked} is open.")
        if place.room == house.locked:
            seen.append(f"The {house.thing} is here.")
    return " ".join(seen)


def legal(house: House, place: HouseState) -> dict[str, HouseState]:
    """The commands that change something, each with what follows; doors first, as they are listed."""
    if place.stage == "fetched":
        return {}
    doors = house.doors[place.room]
    shut = house.locked if place.stage != "open" else ""
    after = {f"go {room}": replace(place, room=room) for room in doors if room != shut}
    if place.stage == "locked" and place.room == house.key:
        after[f"take {KEY}"] = replace(place, stage="carried")
    if place.stage == "carried" and house.locked in doors:
        after[f"open {house.locked}"] = replace(place, stage="open")
    if place.stage == "open" and place.room == house.locked:
        after[f"take {house.thing}"] = replace(place, stage="fetched")
    return after


def shortest(house: House) -> list[str] | None:
    """The fewest commands that fetch the thing, by the plan of the house; None where none do."""
    waiting: deque[tuple[HouseState, list[str]]] = deque([(house.begin, [])])
    known = {house.begin}
    while waiting:
        place, commands = waiting.popleft()
        if place.stage == "fetched":
            return commands
        for command, after in legal(house, place).items():
            if after not in known:
                known.add(after)
                waiting.append((after, [*commands, command]))
    return None


def played(house: House, commands: Sequence[str]) -> HouseState:
    """Where these commands lead; those that are not possible where they are given change nothing."""
    place = house.begin
    for command in commands:
        place = legal(house, place).get(command.strip(), place)
    return place


def grade(task: Task, leaf: Node) -> Grade:
    """Whether the thing was fetched, by the commands alone."""
    return verdict(played(house_of(task), [turn.text for turn in leaf.written]).stage == "fetched")


class Visitor:
    """Somebody who reads what is said, remembers the doors of the rooms that they were in, and has a habit."""

    def __init__(self, house: House, rng: random.Random) -> None:
        self.house, self.rng = house, rng
        self.visited = {house.start}

    def episode(self, wander: float, turns: int) -> list[Exchange]:
        house, place, exchanges = self.house, self.house.begin, list[Exchange]()
        while place.stage != "fetched" and len(exchanges) < turns:
            commands = legal(house, place)
            first = next((command for command in commands if command.startswith("go ")), None)
            command = first if first and self.rng.random() < wander else self.sensible(place, list(commands))
            place = commands[command]
            self.visited.add(place.room)
            ended = place.stage == "fetched" or len(exchanges) == turns - 1
            exchanges.append(Exchange(command, "" if ended else text_of(house, place)))
        return exchanges

    def sensible(self, place: HouseState, commands: Sequence[str]) -> str:
        """To do what can be done here; else to go towards what is looked for, where its door was seen, else to the
        nearest room not yet visited."""
        here = [command for command in commands if not command.startswith("go ")]
        if here:
            return here[0]
        wanted = self.house.key if place.stage == "locked" else self.house.locked
        waiting: deque[tuple[str, str]] = deque([(place.room, "")])
        known, nearest = {place.room}, ""
        while waiting:
            room, way = waiting.popleft()
            doors = self.house.doors[room]
            for other in self.rng.sample(doors, len(doors)):
                if other == wanted:
                    return f"go {way or other}"
                if other in known or (other == self.house.locked and place.stage != "open"):
                    continue
                known.add(other)
                if other in self.visited:
                    waiting.append((other, way or other))
                else:
                    nearest = nearest or way or other
        return f"go {nearest}"
