"""Ways to a thing, step by step, over drawn pictures seen from above, with or without a visual prompt drawn into them.

A black disc stands in one of four by four cells and is to reach the shape of a colour: ``red?``. A completion is its
moves, ``u``, ``d``, ``l`` and ``r``; other shapes stand in the way. After each turn the environment ``routes`` shows
where it stands. ``marks`` are drawn into each picture: a box around the target, and a line from the disc to it.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, JudgedStep, Message, Split, Task
from lyceum.models.see import data_uri
from lyceum.reward.base import each
from lyceum.tasks.base import GeneratedSource, check_index, draw, levels_within
from lyceum.tasks.pictures import CELL, CELLS, LEVELS, NAMED, Shape, drawn, in_cell

Mark = Literal["box", "line"]
MOVES: Mapping[str, tuple[int, int]] = {"u": (0, -1), "d": (0, 1), "l": (-1, 0), "r": (1, 0)}
"""Columns to the right and rows down of each move."""


class Routes(TasksSettings):
    """A disc is to go to the shape of a colour, around others; moves that come closer are judged 1, others 0."""

    kind: Literal["routes"] = "routes"
    levels: tuple[int, ...] = (1, 2)
    """Moves on the shortest way: one or two more than the level; and as many other shapes as twice the level. Tasks
    cycle through them."""
    marks: tuple[Mark, ...] = ("box", "line")
    """The visual prompt: what is drawn into each picture beside what is there; none: ``[]``."""
    begun: bool = False
    """Whether prompts are conversations that have come some of the way, and demonstrations the next move, for
    fine-tuning alone."""
    size: int = 100_000
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, LEVELS, "levels")

    def build(self, split: Split, seed: int) -> RoutesSource:
        return RoutesSource(self, split, seed)


class RoutesSource(GeneratedSource[Routes]):
    """``source[i]`` depends on (seed, split, i) alone, and with or without marks the scene is the same."""

    def __getitem__(self, index: int) -> Task:
        check_index("routes", index, len(self))
        level = self.settings.levels[index % len(self.settings.levels)]
        id = f"routes/{self.split}/{self.seed}/{level}/{index}"
        task = draw(id, self.split, lambda rng: _task(rng, level), problem=lambda task: str(dict(task.columns)))
        task = replace(task, id=id, columns={**task.columns, "marks": list(self.settings.marks)})
        moves = str(task.answer)
        done = random.Random(f"{id}/begun").randrange(len(moves)) if self.settings.begun else 0
        demonstration = moves[done] if self.settings.begun else moves
        messages: list[Message] = [
            {
                "role": "user",
                "content": [shown(task, task.columns["start"]), {"type": "text", "text": f"{task.columns['colour']}?"}],
            }
        ]
        place = task.columns["start"]
        for move in moves[:done]:
            place = walked(task, place, move)[-1]
            messages += [{"role": "assistant", "content": move}, {"role": "user", "content": [shown(task, place)]}]
        return replace(task, messages=tuple(messages), columns={**task.columns, "demonstration": demonstration})

    def grader(self) -> Grader:
        return each(grade)

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        return judged_steps(task, completion)


def grade(task: Task, leaf: Node) -> Grade:
    """1 where the moves end at the target."""
    moves = leaf.completion
    there = [task.columns["start"], *walked(task, task.columns["start"], moves)][-1] == task.columns["target"]
    return Grade(float(there), there, steps=judged_steps(task, moves), answered=bool(moves))


def judged_steps(task: Task, moves: str) -> tuple[JudgedStep, ...]:
    """Each character: 1 where it comes closer to the target, as SeeNav-Agent's released code (``compute_step_reward``)
    judges moves, else 0."""
    target = task.columns["target"]
    places = [task.columns["start"], *walked(task, task.columns["start"], moves)]
    return tuple(
        JudgedStep(i, i + 1, float(apart(places[i + 1], target) < apart(places[i], target))) for i in range(len(moves))
    )


def walked(task: Task, place: int, moves: str) -> list[int]:
    """The cell after each character; one that is no move, or that would leave the grid or enter another shape's cell,
    changes nothing."""
    taken = {cell for cell, _ in task.columns["others"]}
    places: list[int] = []
    for move in moves:
        there = _beside(place, move)
        place = place if there is None or there in taken else there
        places.append(place)
    return places


def apart(a: int, b: int) -> int:
    """Moves between two cells, were nothing in the way."""
    return abs(a % CELLS - b % CELLS) + abs(a // CELLS - b // CELLS)


def shown(task: Task, place: int) -> dict[str, Any]:
    """The part of a message that shows the scene, with the disc in a cell."""
    of = task.columns
    rng = random.Random(f"{of['start']} {of['target']} {of['others']}")  # shapes stay where they are from turn to turn
    around = [in_cell(rng, cell, colour) for cell, colour in [(of["target"], of["colour"]), *of["others"]]]
    x, y = _corner(place)
    disc: Shape = ("ellipse", "black", (x + 2, y + 2, x + 9, y + 9))
    line = [_line(place, of["target"])] if "line" in of["marks"] and place != of["target"] else []
    box = _box(of["target"]) if "box" in of["marks"] else []
    return {"type": "image", "image": data_uri(drawn([*line, *around, *box, disc]))}


def _task(rng: random.Random, level: int) -> Task | None:
    """None where nothing that comes closer at each move is a way to the target."""
    start, target, *others = rng.sample(range(CELLS**2), 2 + 2 * level)
    colour = rng.choice(NAMED)
    rest = [other for other in NAMED if other != colour]
    columns = {
        "level": level,
        "start": start,
        "target": target,
        "colour": colour,
        "others": [[cell, rng.choice(rest)] for cell in others],
    }
    task = Task("", (), None, columns, provenance="routes")
    way = _way(task)
    if way is None or len(way) not in (level + 1, level + 2) or len(way) > apart(start, target):
        return None
    return replace(task, answer=way)


def _way(task: Task) -> str | None:
    """The moves of a shortest way; None where there is none."""
    start = task.columns["start"]
    found, left = {start: ""}, deque([start])
    while left:
        place = left.popleft()
        for move in MOVES:
            [there] = walked(task, place, move)
            if there not in found:
                found[there] = found[place] + move
                left.append(there)
    return found.get(task.columns["target"])


def _beside(place: int, move: str) -> int | None:
    right, down = MOVES.get(move, (0, 0))
    column, row = place % CELLS + right, place // CELLS + down
    return row * CELLS + column if 0 <= column < CELLS and 0 <= row < CELLS else None


def _corner(cell: int) -> tuple[int, int]:
    return cell % CELLS * CELL, cell // CELLS * CELL


def _box(cell: int) -> list[Shape]:
    x, y = _corner(cell)
    far = CELL - 1
    edges = ((0, 0, far, 0), (0, far, far, far), (0, 0, 0, far), (far, 0, far, far))
    return [("rectangle", "black", (x + a, y + b, x + c, y + d)) for a, b, c, d in edges]


def _line(here: int, there: int) -> Shape:
    """Two pixels wide, from the middle of a cell to that of another."""
    middle = CELL // 2
    (x, y), (to_x, to_y) = ((a + middle, b + middle) for a, b in map(_corner, (here, there)))
    length = math.hypot(to_x - x, to_y - y)
    across, down = (y - to_y) / length, (to_x - x) / length
    corners = (
        (x + across, y + down),
        (x - across, y - down),
        (to_x - across, to_y - down),
        (to_x + across, to_y + down),
    )
    return "polygon", "black", tuple(round(at) for corner in corners for at in corner)
