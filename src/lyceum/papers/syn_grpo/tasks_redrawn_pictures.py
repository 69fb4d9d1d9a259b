"""Drawn pictures that the policy describes anew: what is asked about stays, the rest is drawn from its words.

``red?`` under a picture is answered as in tasks ``pictures``. ``red?+`` asks for other surroundings: ``blue c2``, say,
is drawn around the red shapes, so that the question and its answer stay as they are. A description is refused that is
none, names a cell twice, or would touch what is asked about.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Message, Split, Task
from lyceum.models.see import data_uri
from lyceum.reward.base import each
from lyceum.tasks.base import GeneratedSource, asks_among, check_index, checksum, kept_for_evaluation, levels_within
from lyceum.tasks.pictures import (
    CELL,
    CELLS,
    COLOURS,
    COLUMNS,
    LEVELS,
    Pictures,
    PicturesSource,
    Shape,
    drawn,
    grade,
    in_cell,
    in_turn,
    seen_and_asked,
)

AskedOfColours = Literal["colour", "compare", "where", "list"]
"""Questions about the shapes of some colours, which others beside them do not change."""
MOST = 8
"""Shapes that a description may name."""
_SHAPE = rf"({'|'.join(COLOURS)}) ([{COLUMNS}][1-{CELLS}])"
_DESCRIPTION = re.compile(rf"{_SHAPE}(?:,{_SHAPE}){{0,{MOST - 1}}}")


class RedrawnPictures(TasksSettings):
    """Questions about shapes of some colours, around which a model may have other shapes drawn."""

    kind: Literal["redrawn-pictures"] = "redrawn-pictures"
    asks: tuple[AskedOfColours, ...] = ("colour", "compare", "where")
    """What is asked, in turn, as in tasks ``pictures``."""
    levels: tuple[int, ...] = (1, 2)
    """As in tasks ``pictures``."""
    proposes: bool = False
    """Whether prompts ask for surroundings, and demonstrations describe some at random, for fine-tuning alone; else
    they ask the question."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, LEVELS, "levels")
    _asks_are_different = asks_among(AskedOfColours)

    def build(self, split: Split, seed: int) -> RedrawnPicturesSource:
        return RedrawnPicturesSource(self, split, seed)


class RedrawnPicturesSource(GeneratedSource[RedrawnPictures]):
    """``source[i]`` depends on (seed, split, i) alone. A picture with its question is always in the same split."""

    def __init__(self, settings: RedrawnPictures, split: Split, seed: int) -> None:
        super().__init__(settings, split, seed)
        pictures = Pictures(asks=settings.asks, levels=settings.levels, scale=1, size=settings.size)
        self.pictures: PicturesSource = pictures.build(split, seed)

    def __getitem__(self, index: int) -> Task:
        check_index("redrawn-pictures", index, len(self))
        ask, level = in_turn(self.settings.asks, self.settings.levels, index)
        id = f"redrawn-pictures/{self.split}/{self.seed}/{ask}/{level}/{index}"
        task = asked(replace(self.pictures.drawn_task(id, ask, level), id=id))
        if not self.settings.proposes:
            return task
        text = at_random(random.Random(f"{id}/around"), *_taken(task))
        return replace(task, messages=to_propose(task), columns={**task.columns, "demonstration": text})

    def to_propose(self, task: Task) -> Sequence[Message]:
        return to_propose(task)

    def proposed(self, text: str, like: Task) -> Task | str:
        """The same question about the same shapes, with others around them.

        No task: another ``format``, a cell that is named ``twice``, a cell or a colour of what is asked about
        (``foreground``), the picture as it was (``copied``), or one kept for evaluation (``heldout``).
        """
        described = text.strip()
        if _DESCRIPTION.fullmatch(described) is None:
            return "format"
        around = [(_cell(name), colour) for colour, name in re.findall(_SHAPE, described)]
        cells, colours = _taken(like)
        if len({cell for cell, _ in around}) < len(around):
            return "twice"
        if any(cell in cells or colour in colours for cell, colour in around):
            return "foreground"
        if sorted(around) == sorted((cell, colour) for cell, colour in _places(like) if colour not in colours):
            return "copied"
        rng = random.Random(f"{like.id}/{described}")
        shapes = [*_foreground(like), *(in_cell(rng, cell, colour) for cell, colour in around)]
        task = replace(like, columns={**like.columns, "shapes": shapes}, notes={}, provenance="policy")
        problem = seen_and_asked(task)
        if kept_for_evaluation(problem):
            return "heldout"
        return asked(replace(task, id=f"redrawn-pictures/proposed/{checksum(problem)}/{described}"))

    def grader(self) -> Grader:
        return each(grade)


def asked(task: Task) -> Task:
    """The task with its picture and its question as the prompt."""
    part: dict[str, Any] = {"type": "image", "image": data_uri(drawn(task.columns["shapes"]))}
    content = [part, {"type": "text", "text": task.columns["short"]}]
    return replace(task, messages=({"role": "user", "content": content},))


def to_propose(task: Task) -> tuple[Message, ...]:
    """The prompt that asks for other surroundings of what a task asks about."""
    [message] = asked(task).messages
    picture, question = message["content"]
    return ({**message, "content": [picture, {**question, "text": f"{question['text']}+"}]},)


def at_random(rng: random.Random, cells: set[int], colours: set[str]) -> str:
    """A description of one to six shapes in other cells and of other colours."""
    free = [cell for cell in range(CELLS**2) if cell not in cells]
    places = rng.sample(free, rng.randint(1, min(6, len(free))))
    others = [colour for colour in COLOURS if colour not in colours]
    return ",".join(f"{rng.choice(others)} {COLUMNS[cell % CELLS]}{cell // CELLS + 1}" for cell in places)


def _cell(name: str) -> int:
    return (int(name[1]) - 1) * CELLS + COLUMNS.index(name[0])


def _places(task: Task) -> list[tuple[int, str]]:
    return [(at[1] // CELL * CELLS + at[0] // CELL, colour) for _, colour, at in task.columns["shapes"]]


def _foreground(task: Task) -> list[Shape]:
    _, colours = _taken(task)
    return [(form, colour, tuple(at)) for form, colour, at in task.columns["shapes"] if colour in colours]


def _taken(task: Task) -> tuple[set[int], set[str]]:
    """The cells and the colours of what is asked about."""
    short = str(task.columns["short"])
    colours = {"red"} if short == "where?" else {colour for colour in COLOURS if colour in re.findall("[a-z]+", short)}
    return {cell for cell, colour in _places(task) if colour in colours}, colours
