"""Drawn screens of things to click: finding one or all of a kind, naming one, choosing the action that is asked for.

A screen is 16 by 16 units of three pixels, times ``scale``. On it are boxes, discs and triangles, each named by its
colour and form. ``red disc?`` is answered by its box, ``3,2,7,6``: left, top, right and bottom, in units from the top
left corner; ``all discs?`` by all their boxes, each with a digit of confidence, ``3,2,7,6:9;8,1,10,3:5``;
``what is it?`` by the name of the only thing there is; ``think, what is it?`` by where it is, then the name:
``3,2,7,6#red disc``. An action is written ``click 5,4``, ``type blue`` or ``scroll down``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.models.see import data_uri
from lyceum.papers.ui_r1._boxes import (
    SUREST,
    Box,
    confidence_reward,
    edges,
    is_on,
    matched_overlaps,
    overlap,
    overlap_reward,
    read_box,
    read_detections,
    read_numbers,
    write_detections,
)
from lyceum.reward.base import each
from lyceum.tasks.base import GeneratedSource, asks_among, check_index, draw, levels_within
from lyceum.tasks.pictures import COLOURS, SIDE, Shape, drawn, in_turn, seen_and_asked

ScreenAsk = Literal["find", "click", "type", "scroll", "all", "label", "think"]
UNITS = 16
UNIT = SIDE // UNITS
FORMS = {"box": "rectangle", "disc": "ellipse", "triangle": "polygon"}
PLURALS = {"box": "boxes", "disc": "discs", "triangle": "triangles"}
LEVELS = 3
_TRIES = 200
_SIDES = (("up", 1), ("down", 1), ("left", 0), ("right", 0))
"""Where something is cut off, and the axis along which one scrolls."""


class Widget(NamedTuple):
    """Something on a screen."""

    colour: str
    form: str
    box: tuple[int, int, int, int]

    @property
    def name(self) -> str:
        return f"{self.colour} {self.form}"

    @property
    def shape(self) -> Shape:
        left, top, right, bottom = (UNIT * edge for edge in self.box)
        right, bottom = right - 1, bottom - 1  # Pillow draws these too
        if self.form == "triangle":
            return "polygon", self.colour, (left, bottom, (left + right) // 2, top, right, bottom)
        return FORMS[self.form], self.colour, (left, top, right, bottom)


class Screens(TasksSettings):
    """Drawn screens, for models that see: where something is, or which action an instruction asks for."""

    kind: Literal["screens"] = "screens"
    asks: tuple[ScreenAsk, ...] = ("click", "type", "scroll")
    """What is asked, in turn: the box of something; clicking it; typing the colour of the only thing of its form;
    scrolling to where something is cut off; the boxes of all that have a colour or a form, each with a digit of
    confidence; the name of the only thing there is; its box, then its name after ``#``."""
    levels: tuple[int, ...] = (1, 2, 3)
    """Things on the screen: two for each level; of ``label`` and ``think`` one, ever smaller. At level 3 what is
    asked for is small; things of ``all`` are larger, the lower the level. Tasks cycle through them."""
    questions: Literal["short", "sentence"] = "short"
    """``click red disc``, for the small model; or a sentence that says how to answer."""
    scale: int = Field(1, ge=1, le=32)
    """How many times 48 pixels a screen has each way."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, LEVELS, "levels")
    _asks_are_different = asks_among(ScreenAsk)

    def build(self, split: Split, seed: int) -> ScreensSource:
        return ScreensSource(self, split, seed)


class ScreensSource(GeneratedSource[Screens]):
    """A screen with its question is always in the same split."""

    def __getitem__(self, index: int) -> Task:
        check_index("screens", index, len(self))
        settings = self.settings
        ask, level = in_turn(settings.asks, settings.levels, index)
        id = f"screens/{self.split}/{self.seed}/{ask}/{level}/{index}"
        task = draw(id, self.split, lambda rng: _task(rng, ask, level), problem=seen_and_asked)
        picture = {"type": "image", "image": data_uri(drawn(task.columns["shapes"], settings.scale))}
        question = {"type": "text", "text": task.columns[settings.questions]}
        kept = {name: value for name, value in task.columns.items() if name not in ("shapes", "short", "sentence")}
        return replace(task, id=id, messages=({"role": "user", "content": [picture, question]},), columns=kept)

    def grader(self) -> Grader:
        return each(grade)


def _task(rng: random.Random, ask: ScreenAsk, level: int) -> Task | None:
    made = ASKS[ask](rng, level)
    if made is None:
        return None
    widgets, targets, short, sentence, answer, demonstration = made
    left, top, right, bottom = targets[0].box
    columns = {
        "ask": ask,
        "level": level,
        "box": list(targets[0].box),
        "boxes": [list(target.box) for target in targets],
        "area": (right - left) * (bottom - top) / UNITS**2,
        "demonstration": demonstration or answer,
        "shapes": [widget.shape for widget in widgets],
        "short": short,
        "sentence": f"{sentence} The screen is {UNITS} units wide and high; 0,0 is its top left corner.",
    }
    return Task("", (), answer, columns, provenance="screens")


# What is asked ---------------------------------------------------------------------------------------------------


class Posed(NamedTuple):
    """What is on the screen, what is asked for, the question, the same as a sentence, the answer; how fine-tuning shows
    it, if otherwise."""

    widgets: Sequence[Widget]
    targets: Sequence[Widget]
    short: str
    sentence: str
    answer: str
    demonstration: str = ""


def _find(rng: random.Random, level: int) -> Posed | None:
    widgets = _screen(rng, _sizes(level))
    if widgets is None:
        return None
    target = widgets[0]
    sentence = f"Where is the {target.name}? Write its left, top, right and bottom edge: 3,2,7,6."
    return Posed(widgets, [target], f"{target.name}?", sentence, ",".join(map(str, target.box)))


def _click(rng: random.Random, level: int) -> Posed | None:
    widgets = _screen(rng, _sizes(level))
    if widgets is None:
        return None
    target = widgets[0]
    left, top, right, bottom = target.box
    x, y = (left + right) // 2, (top + bottom) // 2
    return Posed(widgets, [target], f"click {target.name}", _sentence(f"click the {target.name}"), f"click {x},{y}")


def _type(rng: random.Random, level: int) -> Posed | None:
    widgets = _screen(rng, _sizes(level))
    if widgets is None or [widget.form for widget in widgets].count(widgets[0].form) > 1:
        return None
    target = widgets[0]
    asked = f"type colour of {target.form}"
    return Posed(widgets, [target], asked, _sentence(f"type the colour of the {target.form}"), f"type {target.colour}")


def _scroll(rng: random.Random, level: int) -> Posed | None:
    """What is asked for touches one edge of the screen, and nothing else does."""
    widgets = _screen(rng, _sizes(level), inside=1)
    if widgets is None:
        return None
    direction, axis = rng.choice(_SIDES)
    first = [*widgets[0].box]
    moved = -first[axis] if direction in ("up", "left") else UNITS - first[axis + 2]
    first[axis], first[axis + 2] = first[axis] + moved, first[axis + 2] + moved
    target = widgets[0]._replace(box=(first[0], first[1], first[2], first[3]))
    if any(_near(target.box, widget.box) for widget in widgets[1:]):
        return None
    sentence = _sentence(f"scroll to show all of the {target.name}, which goes on beyond the edge")
    return Posed([target, *widgets[1:]], [target], f"show {target.name}", sentence, f"scroll {direction}")


def _all(rng: random.Random, level: int) -> Posed | None:
    # Large, for a match asks for half of what two boxes cover: within a unit on each side, of a thing of five.
    widgets = _screen(rng, [(6 - level, 8 - level)] * (2 * level))
    if widgets is None:
        return None
    first = widgets[0]
    kind, plural = rng.choice([(first.colour, first.colour), (first.form, PLURALS[first.form])])
    targets = [widget for widget in widgets if kind in (widget.colour, widget.form)]
    boxes = [target.box for target in sorted(targets, key=lambda target: (target.box[1], target.box[0]))]
    # Demonstrations teach the form alone: the reward teaches what to be sure of, for which every digit has to occur.
    shown = write_detections(boxes, [rng.randint(0, SUREST) for _ in boxes])
    sentence = (
        f"Where are all that are {kind}? Write of each its left, top, right and bottom edge and how sure you are, 0 to "
        f"{SUREST}, with a semicolon between: 3,2,7,6:9;8,1,10,3:5."
    )
    return Posed(widgets, targets, f"all {plural}?", sentence, write_detections(boxes, [SUREST] * len(boxes)), shown)


def _label(rng: random.Random, level: int) -> Posed | None:
    size = 8 // 2**level
    widgets = _screen(rng, [(size, size + 1)])
    if widgets is None:
        return None
    sentence = f"What is it? Write its colour ({', '.join(COLOURS)}) and form ({', '.join(FORMS)}): red disc."
    return Posed(widgets, widgets, "what is it?", sentence, widgets[0].name)


def _think(rng: random.Random, level: int) -> Posed | None:
    made = _label(rng, level)
    if made is None:
        return None
    edges_of = ",".join(map(str, made.targets[0].box))
    before = "Think first: write its left, top, right and bottom edge, then #."
    return made._replace(
        short=f"think, {made.short}",
        sentence=f"{made.sentence} {before}",
        demonstration=f"{edges_of}#{made.answer}",
    )


ASKS: Mapping[ScreenAsk, Callable[[random.Random, int], Posed | None]] = {
    "find": _find,
    "click": _click,
    "type": _type,
    "scroll": _scroll,
    "all": _all,
    "label": _label,
    "think": _think,
}


def _sentence(instruction: str) -> str:
    return f"What is the one action to {instruction}? Write click 3,2 or type red or scroll up, with what fits here."


def _sizes(level: int) -> list[tuple[int, int]]:
    return [(2, 3 if level == LEVELS and n == 0 else 6) for n in range(2 * level)]


def _screen(rng: random.Random, sizes: Sequence[tuple[int, int]], inside: int = 0) -> list[Widget] | None:
    """Things apart from each other, of different names, each with sides from one size to another, at least ``inside``
    units from each edge; the first is what is asked for. None where they did not fit."""
    names = rng.sample([(colour, form) for colour in COLOURS for form in FORMS], len(sizes))
    widgets: list[Widget] = []
    for (colour, form), (smallest, largest) in zip(names, sizes, strict=True):
        for _ in range(_TRIES):
            width, height = rng.randint(smallest, largest), rng.randint(smallest, largest)
            left, top = (rng.randint(inside, UNITS - inside - side) for side in (width, height))
            box = left, top, left + width, top + height
            if not any(_near(box, widget.box) for widget in widgets):
                widgets.append(Widget(colour, form, box))
                break
        else:
            return None
    return widgets


def _near(a: Box, b: Box) -> bool:
    """Whether less than a unit is between two boxes."""
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


# Grading ---------------------------------------------------------------------------------------------------------


def grade(task: Task, leaf: Node) -> Grade:
    """A box is right where its centre is on what was asked for, an action where its name and what it names are, a label
    where it is the name; a list of boxes, where each has its own thing and no thing is left.

    Parts of a box: ``hit`` (right), ``overlap`` and ``edges``; of an action: ``action`` (its name) and ``target``; of a
    list: ``matched`` and ``confidence``; of a label: ``label`` (right) and ``contained`` (:func:`contained`).
    Truncated ones earn nothing.
    """
    text = "" if leaf.finish == "length" else leaf.completion.strip()
    target: Box = tuple(task.columns["box"])
    if task.columns["ask"] == "find":
        found = read_box(text)
        hit = found is not None and is_on((found[0] + found[2]) / 2, (found[1] + found[3]) / 2, target)
        parts = {"hit": float(hit)}
        parts |= {"overlap": 0.0 if found is None else overlap(found, target)}
        parts |= {"edges": 0.0 if found is None else edges(found, target, UNITS)}
        return Grade(float(hit), hit, parts=parts, answered=found is not None)
    if task.columns["ask"] == "all":
        return _grade_list(text, [tuple(box) for box in task.columns["boxes"]])
    if task.columns["ask"] in ("label", "think"):
        text = text if task.columns["ask"] == "label" else text.partition("#")[2]
        right = text == task.answer
        parts = {"label": float(right), "contained": float(contained(text, task.answer))}
        return Grade(float(right), right, parts=parts, answered=bool(text))
    name, _, argument = text.partition(" ")
    named = name == task.answer.partition(" ")[0]
    if named and name == "click":
        at = read_numbers(argument, 2)
        right = at is not None and is_on(at[0], at[1], target)
    else:
        right = text == task.answer
    answered = name in ("click", "type", "scroll") and bool(argument)
    return Grade(float(right), right, parts={"action": float(named), "target": float(right)}, answered=answered)


def _grade_list(text: str, targets: Sequence[Box]) -> Grade:
    listed = read_detections(text)
    found = listed or []
    matched = matched_overlaps(found, targets)
    right = len(found) == len(targets) and all(matched)
    parts = {"matched": overlap_reward(matched, len(targets)), "confidence": confidence_reward(matched, found)}
    return Grade(float(right), right, parts=parts, answered=listed is not None)


def contained(answer: str, label: str) -> bool:
    """Whether a label is a piece of the answer, or the answer of the label; spaces, underscores and case do not count.

    So a letter of the label is enough. Nothing is not (in the released code it is).

    Source:
        Visual-RFT, arXiv:2503.01785: its released code (``grpo_classification.py``).
    """
    one, other = ("".join(text.replace("_", " ").split()).casefold() for text in (answer, label))
    return bool(one) and (one in other or other in one)
