"""Questions about drawn pictures: counts, colours, comparing, places, lists, bar charts, paths of arrows, sums.

A picture is four by four cells of 12 pixels, times ``scale``. Columns are called a to d from the left, rows 1 to 4 from
the top. ``count?`` under a picture of five shapes is answered ``2,0,2,1#5``: what each row has, then the answer after
``#``. Each number before ``#`` is a step that a rule can check; what they are for the other questions, ``ASKS`` says.
The same may be asked as ``count? 4?``, answered ``2,0,2,1#no``, or as ``count? A4 B5 C3 D7``, answered ``2,0,2,1#B``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import Field, model_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, JudgedStep, Split, Task
from lyceum.models.see import data_uri
from lyceum.reward.base import each
from lyceum.tasks.base import GeneratedSource, asks_among, check_index, draw, grade_after_mark, levels_within

Ask = Literal["count", "colour", "compare", "where", "chart", "path", "sum", "list"]
AnyAsk = TypeVar("AnyAsk", bound=str)
Shown = Literal["own", "blank", "swapped"]
Caption = Literal["none", "beside", "instead"]
Form = Literal["open", "yes-or-no", "choice"]
Shape = tuple[str, str, tuple[int, ...]]
"""Form (``ellipse``, ``rectangle``, ``polygon``), colour, coordinates in pixels."""

CELL, CELLS = 12, 4
SIDE = CELL * CELLS
COLOURS = {
    "red": (220, 40, 40), "blue": (40, 80, 220), "green": (30, 160, 60), "black": (20, 20, 20)
}  # fmt: skip
NAMED = ("red", "blue", "green")
"""Colours that questions name."""
COLUMNS = "abcd"
LEVELS = 3
LETTERS = "ABCD"
OPEN = "Write # and then the answer alone."
CAPTIONED = ("count", "colour", "compare", "where", "list")
"""Questions about single shapes, which a caption can name."""
HIGHEST = 8
"""Of a bar, in steps of five pixels."""
_SEGMENTS = (119, 36, 93, 109, 46, 107, 123, 37, 127, 111)
"""Lit segments of each digit: top, top left, top right, middle, bottom left, bottom right, bottom, lowest bit first."""


class Scene(NamedTuple):
    """A picture's shapes, a question about it, the steps to its answer, the answer; and the question as a sentence."""

    shapes: Sequence[Shape]
    short: str
    sentence: str
    steps: Sequence[str]
    answer: str


class Pictures(TasksSettings):
    """Questions about drawn pictures, for models that see; the answer comes after ``#``."""

    kind: Literal["pictures"] = "pictures"
    asks: tuple[Ask, ...] = ("count", "colour", "compare", "where", "chart", "path", "sum")
    """What is asked, in turn: how many shapes; how many of a colour; which of two has more; where the red one is; a bar
    chart; where arrows lead; a sum of digits. And ``list``, where it is named: the cells of a colour's shapes, then how
    many they are, so that wrong answers differ in length."""
    levels: tuple[int, ...] = (1, 2, 3)
    """More shapes (3 for each level; in a list 2 of its colour and 2 others), bars, arrows or digits; tasks cycle
    through them."""
    questions: Literal["short", "sentence"] = "short"
    """``count?``, for the small model that ``pictures-base`` trains; or a sentence that says how to answer."""
    scale: int = Field(1, ge=1, le=32)
    """How many times 48 pixels a picture has each way."""
    shown: Shown = "own"
    """The task's own picture; a blank one, or another task's, to see that it is looked at."""
    caption: Caption = "none"
    """The shapes in words under the picture (``red a1, blue c2``), or in its place; of the asks count, colour, compare,
    where and list."""
    form: Form = "open"
    """Whether the answer itself is asked for, or whether it is the one that is named, or which of four it is, by its
    letter. Other answers than the true one are of the same kind: numbers near it, colours, bars, cells."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    @model_validator(mode="after")
    def _captions_are_possible(self) -> Pictures:
        without = [ask for ask in self.asks if ask not in CAPTIONED]
        if self.caption != "none" and without:
            raise ValueError(
                f"caption: got {self.caption!r}, and no words say what pictures of {', '.join(without)} show; allowed: "
                f"none, or asks of {', '.join(CAPTIONED)} alone"
            )
        return self

    _levels_are_usable = levels_within(1, LEVELS, "levels")
    _asks_are_different = asks_among(Ask)

    def build(self, split: Split, seed: int) -> PicturesSource:
        return PicturesSource(self, split, seed)


class PicturesSource(GeneratedSource[Pictures]):
    """``source[i]`` depends on (seed, split, i) alone. A picture with its question is always in the same split."""

    def __getitem__(self, index: int) -> Task:
        check_index("pictures", index, len(self))
        settings = self.settings
        ask, level = in_turn(settings.asks, settings.levels, index)
        id = f"pictures/{self.split}/{self.seed}/{ask}/{level}/{index}"
        task = self.drawn_task(id, ask, level)
        shapes = task.columns["shapes"]
        if settings.shown == "blank":
            shapes = []
        elif settings.shown == "swapped":
            shapes = self.drawn_task(f"{id}/other", ask, level).columns["shapes"]
        picture = {"type": "image", "image": data_uri(drawn(shapes, settings.scale))}
        if settings.form != "open":
            task = _closed(random.Random(f"{id}/{settings.form}"), task, settings.form)
        text = task.columns[settings.questions]
        if settings.caption != "none":
            text = f"{caption(task.columns['shapes'])}\n{text}"
        content: Any = text if settings.caption == "instead" else [picture, {"type": "text", "text": text}]
        kept = {name: value for name, value in task.columns.items() if name not in ("shapes", "short", "sentence")}
        kept |= {"caption": settings.caption, "form": settings.form}
        return replace(task, id=id, messages=({"role": "user", "content": content},), columns=kept)

    def drawn_task(self, id: str, ask: Ask, level: int) -> Task:
        """A question of the split in both wordings, with its shapes, as columns; it has no messages."""
        return draw(id, self.split, lambda rng: _task(rng, ask, level), problem=seen_and_asked)

    def grader(self) -> Grader:
        return each(grade)

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        return judged_steps(task, completion)


def _task(rng: random.Random, ask: Ask, level: int) -> Task | None:
    scene = ASKS[ask](rng, level)
    if scene is None:
        return None
    columns = {
        "ask": ask,
        "level": level,
        "steps": list(scene.steps),
        "demonstration": f"{','.join(scene.steps)}#{scene.answer}",
        "shapes": list(scene.shapes),
        "short": scene.short,
        "sentence": f"{scene.sentence} {OPEN}",
    }
    return Task("", (), scene.answer, columns, provenance="pictures")


def in_turn(asks: Sequence[AnyAsk], levels: Sequence[int], index: int) -> tuple[AnyAsk, int]:
    """What a task asks and its level: all asks of a level, then those of the next."""
    turn, place = divmod(index, len(asks))
    return asks[place], levels[turn % len(levels)]


def seen_and_asked(task: Task) -> str:
    """What tells a drawn task from others, whatever its wording and scale."""
    return f"{task.columns['short']} {task.columns['shapes']}"


def drawn(shapes: Sequence[Shape], scale: int = 1) -> Any:
    """The pixels (side, side, 3) of a picture, on white."""
    import numpy as np
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(image)
    for form, colour, at in shapes:
        pens = {"ellipse": pen.ellipse, "rectangle": pen.rectangle, "polygon": pen.polygon}
        pens[form](at, fill=COLOURS[colour])
    image = image if scale == 1 else image.resize((SIDE * scale, SIDE * scale), Image.Resampling.NEAREST)
    return np.asarray(image, dtype=np.uint8)


def caption(shapes: Sequence[Shape]) -> str:
    """Each shape's colour and cell, row by row."""
    cells = sorted((at[1] // CELL * CELLS + at[0] // CELL, colour) for _, colour, at in shapes)
    return ", ".join(f"{colour} {_name(cell)}" for cell, colour in cells)


# What is asked ---------------------------------------------------------------------------------------------------


def _count(rng: random.Random, level: int) -> Scene:
    cells, _, shapes = _scattered(rng, rng.randint(1, 3 * level))
    per_row = _per_row(cells)
    return Scene(
        shapes, "count?", "How many shapes are in each of the four rows, and in all?", per_row, str(len(cells))
    )


def _colour(rng: random.Random, level: int) -> Scene:
    cells, colours, shapes = _scattered(rng, rng.randint(1, 3 * level))
    asked = rng.choice(NAMED)
    own = [cell for cell, colour in zip(cells, colours, strict=True) if colour == asked]
    sentence = f"How many {asked} shapes are in each of the four rows, and in all?"
    return Scene(shapes, f"{asked}?", sentence, _per_row(own), str(len(own)))


def _compare(rng: random.Random, level: int) -> Scene | None:
    """None where both have as many."""
    _, colours, shapes = _scattered(rng, rng.randint(1, 3 * level))
    first, second = rng.sample(NAMED, 2)
    counts = [colours.count(first), colours.count(second)]
    if counts[0] == counts[1]:
        return None
    sentence = f"How many shapes are {first}, how many {second}, and which colour has more?"
    return Scene(shapes, f"{first} or {second}?", sentence, [*map(str, counts)], (first, second)[counts[1] > counts[0]])


def _where(rng: random.Random, level: int) -> Scene:
    cells = rng.sample(range(CELLS**2), 1 + 3 * (level - 1))
    shapes = [in_cell(rng, cell, "red" if n == 0 else rng.choice(NAMED[1:])) for n, cell in enumerate(cells)]
    rng.shuffle(shapes)
    sentence = "In which cell is the red shape? Columns are a to d from the left, rows 1 to 4 from the top."
    return Scene(shapes, "where?", sentence, [], _name(cells[0]))


def _chart(rng: random.Random, level: int) -> Scene:
    heights = rng.sample(range(1, HIGHEST + 1), CELLS)
    shapes: list[Shape] = [
        ("rectangle", "blue", (n * CELL + 2, SIDE - 1 - high * 5, n * CELL + 9, SIDE - 1))
        for n, high in enumerate(heights)
    ]
    of = dict(zip(COLUMNS, heights, strict=True))
    bars = f"Bars a to d, 5 pixels of {SIDE} for each unit: "
    if level == 1:
        return Scene(shapes, "highest?", bars + "which is the highest?", [], max(of, key=of.__getitem__))
    if level == 2:
        bar = rng.choice(COLUMNS)
        return Scene(shapes, f"bar {bar}?", bars + f"how high is {bar}?", [], str(of[bar]))
    low, high = sorted(rng.sample(COLUMNS, 2), key=of.__getitem__)
    steps = [str(of[high]), str(of[low])]
    asked = f"how high are {high} and {low}, and what is the difference?"
    return Scene(shapes, f"{high}-{low}?", bars + asked, steps, str(of[high] - of[low]))


def _path(rng: random.Random, level: int) -> Scene:
    """Arrows from a red cell's on; the cell that the last one points to has none."""
    length = level + 1
    while True:
        cells = [rng.randrange(CELLS**2)]
        while len(cells) <= length:
            near = [cell for cell in _beside(cells[-1]) if cell not in cells]
            if not near:
                break
            cells.append(rng.choice(near))
        if len(cells) > length:
            break
    shapes: list[Shape] = []
    for n, (here, there) in enumerate(itertools.pairwise(cells)):
        shapes.append(_arrow(here, there, "red" if n == 0 else "black"))
    names = [_name(cell) for cell in cells]
    sentence = (
        "Follow the arrows from the red one on: which cells do they lead to, and which is the last? Columns are a to d "
        "from the left, rows 1 to 4 from the top."
    )
    return Scene(shapes, "path?", sentence, names[:-1], names[-1])


def _sum(rng: random.Random, level: int) -> Scene:
    digits = [rng.randint(1, 9) for _ in range(level + 1)]
    shapes: list[Shape] = []
    for n, digit in enumerate(digits):
        left, top = n % 2 * 24 + rng.randint(2, 8), n // 2 * 24 + rng.randint(2, 4)
        shapes += _digit(digit, left, top)
    steps = [*map(str, digits)]
    return Scene(shapes, "sum?", "Which digits are shown, row by row, and what is their sum?", steps, str(sum(digits)))


def _list(rng: random.Random, level: int) -> Scene:
    """Up to two shapes of the colour for each level, and as many others."""
    asked = rng.choice(NAMED)
    n_own, n_others = rng.randint(0, 2 * level), rng.randint(0, 2 * level)
    cells = rng.sample(range(CELLS**2), n_own + n_others)
    own, others = cells[:n_own], cells[n_own:]
    rest = [colour for colour in NAMED if colour != asked]
    shapes = [in_cell(rng, cell, asked) for cell in own] + [in_cell(rng, cell, rng.choice(rest)) for cell in others]
    rng.shuffle(shapes)
    sentence = (
        f"In which cells are {asked} shapes, row by row, and how many are they? Columns are a to d from the left, rows "
        "1 to 4 from the top."
    )
    return Scene(shapes, f"{asked} cells?", sentence, [_name(cell) for cell in sorted(own)], str(n_own))


ASKS: Mapping[Ask, Callable[[random.Random, int], Scene | None]] = {
    "count": _count,
    "colour": _colour,
    "compare": _compare,
    "where": _where,
    "chart": _chart,
    "path": _path,
    "sum": _sum,
    "list": _list,
}
"""A question's scene, of a level. The steps of its answer: shapes in each row (count, colour), of each colour
(compare), heights (chart), cells on the way (path), digits (sum), cells (list)."""


# How it is asked ----------------------------------------------------------------------------------------------------


def _closed(rng: random.Random, task: Task, form: Form) -> Task:
    """The same task with answers to choose from: yes or no to one, or the letters of four."""
    others = rng.sample(other_answers(task.answer), len(LETTERS) - 1)
    if form == "yes-or-no":
        answer = rng.choice(["yes", "no"])
        named = f"{task.answer if answer == 'yes' else others[0]}?"
        how = f"Is it {named} Write # and then yes or no."
    else:
        place = rng.randrange(len(LETTERS))
        options = [*others[:place], task.answer, *others[place:]]
        answer = LETTERS[place]
        named = " ".join(f"{letter}{option}" for letter, option in zip(LETTERS, options, strict=True))
        how = f"Which is it: {named}? Write # and then its letter alone."
    columns = {
        **task.columns,
        "demonstration": f"{','.join(task.columns['steps'])}#{answer}",
        "short": f"{task.columns['short']} {named}",
        "sentence": f"{task.columns['sentence'].removesuffix(OPEN)}{how}",
    }
    return replace(task, answer=answer, columns=columns)


def other_answers(answer: str) -> list[str]:
    """Answers of the same kind, at least three: the numbers that are nearest, or all colours, bars or cells."""
    if answer.isdecimal():
        near = [n for n in range(max(0, int(answer) - 3), int(answer) + 4) if n != int(answer)]
        return [*map(str, near)]
    every = next(names for names in (COLOURS, COLUMNS, [*map(_name, range(CELLS**2))]) if answer in names)
    return [name for name in every if name != answer]


# What is drawn ---------------------------------------------------------------------------------------------------


def _scattered(rng: random.Random, n: int) -> tuple[list[int], list[str], list[Shape]]:
    cells = rng.sample(range(CELLS**2), n)
    colours = [rng.choice(NAMED) for _ in cells]
    return cells, colours, [in_cell(rng, cell, colour) for cell, colour in zip(cells, colours, strict=True)]


def in_cell(rng: random.Random, cell: int, colour: str) -> Shape:
    x, y = cell % CELLS * CELL + rng.randint(1, 3), cell // CELLS * CELL + rng.randint(1, 3)
    return rng.choice(("ellipse", "rectangle")), colour, (x, y, x + 7, y + 7)


def _per_row(cells: Sequence[int]) -> list[str]:
    return [str(sum(cell // CELLS == row for cell in cells)) for row in range(CELLS)]


def _name(cell: int) -> str:
    return f"{COLUMNS[cell % CELLS]}{cell // CELLS + 1}"


def _beside(cell: int) -> list[int]:
    column, row = cell % CELLS, cell // CELLS
    near = [(column - 1, row), (column + 1, row), (column, row - 1), (column, row + 1)]
    return [y * CELLS + x for x, y in near if 0 <= x < CELLS and 0 <= y < CELLS]


def _arrow(here: int, there: int, colour: str) -> Shape:
    """A triangle that points from one cell to the one beside it."""
    x, y = here % CELLS * CELL, here // CELLS * CELL
    near, far, middle = 1, CELL - 2, CELL // 2 - 1
    corners = {
        1: (near, near, near, far, far, middle),
        -1: (far, near, far, far, near, middle),
        CELLS: (near, near, far, near, middle, far),
        -CELLS: (near, far, far, far, middle, near),
    }[there - here]
    return "polygon", colour, tuple(at + (y if n % 2 else x) for n, at in enumerate(corners))


def _digit(digit: int, left: int, top: int) -> list[Shape]:
    """Seven segments, two pixels wide, 9 by 17."""
    bars = ((0, 0, 8, 1), (0, 0, 1, 8), (7, 0, 8, 8), (0, 8, 8, 9), (0, 8, 1, 16), (7, 8, 8, 16), (0, 15, 8, 16))
    lit = [bar for n, bar in enumerate(bars) if _SEGMENTS[digit] >> n & 1]
    return [("rectangle", "black", (left + a, top + b, left + c, top + d)) for a, b, c, d in lit]


# Grading ---------------------------------------------------------------------------------------------------------


def grade(task: Task, leaf: Node) -> Grade:
    return grade_after_mark(task, leaf, judged_steps(task, leaf.completion))


def judged_steps(task: Task, completion: str) -> tuple[JudgedStep, ...]:
    """Each piece between commas before ``#``: right where it is the task's step at that place; then the answer."""
    asked: Sequence[str] = task.columns["steps"]
    reasoning, mark, answer = completion.partition("#")
    judged: list[JudgedStep] = []
    start = 0
    for n, piece in enumerate(reasoning.split(",") if reasoning else ()):
        end = min(start + len(piece) + 1, len(reasoning))
        if end > start:
            judged.append(JudgedStep(start, end, float(n < len(asked) and piece.strip() == asked[n])))
        start = end
    if mark:
        judged.append(JudgedStep(start, len(completion), float(answer.strip() == task.answer)))
    return tuple(judged)
