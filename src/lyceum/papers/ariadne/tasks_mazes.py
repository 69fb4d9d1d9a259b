"""Drawn mazes whose path has exactly so many steps and so many turns, and a rule that walks them.

A maze is a tree of passages over four by four cells of 12 pixels, so that one path leads from the green cell to the red
one. It is answered move by move, each with the cell that it enters: ``>b1vb2``. The moves alone are graded; the cells
are the reasoning between them.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.models.see import data_uri
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, check_levels, draw
from lyceum.tasks.pictures import CELL, CELLS, COLUMNS, SIDE, Shape, drawn

STEPS = {">": 1, "<": -1, "v": CELLS, "^": -CELLS}
"""Moves, each with what it adds to the number of a cell; cells are numbered row by row."""
MOST_STEPS, MOST_TURNS = 8, 5
"""Of a path: longer ones are too rare in mazes of 16 cells to be drawn."""
FORM = re.compile(r"(?:[<>^v][a-d][1-4])+")
Passages = frozenset[tuple[int, int]]
"""Pairs of cells, the lower number first, between which there is no wall."""


class Mazes(TasksSettings):
    """Mazes drawn as pictures, by the number of steps and of turns of their path."""

    kind: Literal["mazes"] = "mazes"
    steps: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Lengths of the path from start to target, in moves; the level of a task."""
    turns: tuple[int, ...] = (0, 1, 2)
    """Numbers of moves in another direction than the move before. Tasks cycle through all pairs that are possible."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    @field_validator("steps")
    @classmethod
    def _steps_are_usable(cls, steps: tuple[int, ...]) -> tuple[int, ...]:
        check_levels(steps, 1, MOST_STEPS, "numbers of steps")
        return steps

    @field_validator("turns")
    @classmethod
    def _turns_are_usable(cls, turns: tuple[int, ...]) -> tuple[int, ...]:
        check_levels(turns, 0, MOST_TURNS, "numbers of turns")
        return turns

    @model_validator(mode="after")
    def _some_pair_is_possible(self) -> Mazes:
        if not self.pairs:
            raise ValueError(
                f"turns: got {list(self.turns)} with steps {list(self.steps)}, and no path has both; "
                f"allowed: fewer turns than steps, at most {CELLS - 1} steps between turns"
            )
        return self

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(steps, turns) of the tasks, in turn."""
        return [pair for pair in itertools.product(self.steps, self.turns) if possible(*pair)]

    def build(self, split: Split, seed: int) -> MazesSource:
        return MazesSource(self, split, seed)


class MazesSource(GeneratedSource[Mazes]):
    """``source[i]`` depends on (seed, split, i) alone. A maze with its start and target is always in the same split."""

    def __getitem__(self, index: int) -> Task:
        key = self.key(index)
        steps, turns = self.settings.pairs[index % len(self.settings.pairs)]
        task = draw(
            f"{key}/{steps}/{turns}",
            self.split,
            lambda rng: make_task(rng, steps, turns),
            problem=lambda task: str([task.columns[name] for name in ("passages", "start", "target")]),
        )
        return replace(task, id=key)

    def grader(self) -> Grader:
        return each(grade)


def possible(steps: int, turns: int) -> bool:
    """Whether a path without crossings over these cells can have so many steps and turns."""
    return turns < steps <= (CELLS - 1) * (turns + 1)


def make_task(rng: random.Random, steps: int, turns: int) -> Task | None:
    """A maze in which some path is of this difficulty; None where this one has none."""
    passages = maze(rng)
    found = [path for path in paths(passages) if len(path) == steps + 1 and turns_of(moves_along(path)) == turns]
    if not found:
        return None
    path = rng.choice(found)
    moves = moves_along(path)
    columns: dict[str, Any] = {
        "level": steps,
        "turns": turns,
        "difficulty": f"{steps}/{turns}",
        "passages": sorted(passages),
        "start": path[0],
        "target": path[-1],
        "moves": moves,
        "demonstration": "".join(f"{move}{name_of(cell)}" for move, cell in zip(moves, path[1:], strict=True)),
    }
    picture = {"type": "image", "image": data_uri(drawn(shapes_of(passages, path[0], path[-1])))}
    content: Any = [picture, {"type": "text", "text": "maze?"}]
    return Task("", ({"role": "user", "content": content},), moves, columns, provenance="mazes")


def maze(rng: random.Random) -> Passages:
    """A spanning tree of the cells, dug to a random undug cell beside the last one or, half of the time, beside any."""
    dug, open_ended, passages = {0}, [0], set[tuple[int, int]]()
    while open_ended:
        here = open_ended[-1] if rng.random() < 0.5 else rng.choice(open_ended)
        near = [cell for cell in beside(here) if cell not in dug]
        if not near:
            open_ended.remove(here)
            continue
        cell = rng.choice(near)
        passages.add((min(here, cell), max(here, cell)))
        dug.add(cell)
        open_ended.append(cell)
    return frozenset(passages)


def beside(cell: int) -> list[int]:
    column, row = cell % CELLS, cell // CELLS
    near = [(column - 1, row), (column + 1, row), (column, row - 1), (column, row + 1)]
    return [y * CELLS + x for x, y in near if 0 <= x < CELLS and 0 <= y < CELLS]


def paths(passages: Passages) -> Iterator[list[int]]:
    """The path between each two cells, both ways: a tree has one."""
    open_from = [[there for there in beside(cell) if is_open(passages, cell, there)] for cell in range(CELLS**2)]

    def onward(path: list[int]) -> Iterator[list[int]]:
        for cell in open_from[path[-1]]:
            if cell not in path:
                longer = [*path, cell]
                yield longer
                yield from onward(longer)

    for cell in range(CELLS**2):
        yield from onward([cell])


def is_open(passages: Passages, here: int, there: int) -> bool:
    return (min(here, there), max(here, there)) in passages


def moves_along(path: Sequence[int]) -> str:
    names = {step: move for move, step in STEPS.items()}
    return "".join(names[there - here] for here, there in itertools.pairwise(path))


def turns_of(moves: str) -> int:
    """How many moves go in another direction than the one before."""
    return sum(before != move for before, move in itertools.pairwise(moves))


def name_of(cell: int) -> str:
    return f"{COLUMNS[cell % CELLS]}{cell // CELLS + 1}"


def shapes_of(passages: Passages, start: int, target: int) -> list[Shape]:
    """Start, target and walls: a wall is two pixels wide, one of each cell, the outer ones are one."""
    shapes: list[Shape] = []
    for colour, cell in (("green", start), ("red", target)):
        x, y = cell % CELLS * CELL, cell // CELLS * CELL
        shapes.append(("rectangle", colour, (x + 3, y + 3, x + 8, y + 8)))
    for cell in range(CELLS**2):
        x, y = cell % CELLS * CELL, cell // CELLS * CELL
        for there, wall in (
            (cell + 1, (x + CELL - 1, y, x + CELL, y + CELL - 1)),
            (cell + CELLS, (x, y + CELL - 1, x + CELL - 1, y + CELL)),
        ):
            if there in beside(cell) and not is_open(passages, cell, there):
                shapes.append(("rectangle", "black", wall))
    last = SIDE - 1
    around = ((0, 0, last, 0), (0, last, last, last), (0, 0, 0, last), (last, 0, last, last))
    return [*shapes, *(("rectangle", "black", outer) for outer in around)]


def walked(columns: Mapping[str, Any], moves: str) -> int | None:
    """The cell where moves end; None where one of them goes through a wall."""
    passages = frozenset((int(a), int(b)) for a, b in columns["passages"])
    cell = int(columns["start"])
    for move in moves:
        there = cell + STEPS[move]
        if there not in beside(cell) or not is_open(passages, cell, there):
            return None
        cell = there
    return cell


def moves_in(text: str) -> str:
    """The moves of an answer, whatever cells it names."""
    return "".join(letter for letter in text if letter in STEPS)


def grade(task: Task, leaf: Node) -> Grade:
    """1 where the answer has the form and its moves lead through no wall to the target, by as many as are needed.

    A way with a detour is not the path; truncated answers are never correct.
    """
    formed = FORM.fullmatch(leaf.completion) is not None
    moves = moves_in(leaf.completion)
    arrives = formed and walked(task.columns, moves) == task.columns["target"] and len(moves) == task.columns["level"]
    return verdict(leaf.finish != "length" and arrives, answered=formed)
