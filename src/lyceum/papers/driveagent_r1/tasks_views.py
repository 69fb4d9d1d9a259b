"""Questions about one picture, or about one of four in one, whose details are lost unless that part is looked at again.

Each picture has 96 x 96 pixels. ``count?`` is asked of one that is drawn large; ``2:count?`` of the second of four,
each drawn in a quarter of it. A model that takes pictures of 48 x 48 pixels sees a quarter with a quarter of the
detail, and all of it in a second picture, which ``environment`` of kind ``look`` with 2 ``units`` shows after
``T1,0,2,1``.
Answers are begun with ``S`` by oneself, with ``T`` after a look: ``S2,0,1,1#4``; ``T1,0,2,1``, then ``2,0,1,1#4``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Message, Split, Task
from lyceum.environment.look import part_of
from lyceum.models.see import Pixels, data_uri, read_picture
from lyceum.reward.base import each
from lyceum.tasks.base import GeneratedSource, asks_among, check_index, levels_within
from lyceum.tasks.pictures import LEVELS, SIDE, Ask, Pictures, PicturesSource, grade
from lyceum.utils.messages import picture_parts

ALONE, TOOL = "S", "T"
"""What a completion begins with, which says its mode."""
VIEWS, UNITS = 4, 2
"""Pictures in one, two by two; units that a look counts in."""
WHOLE = (0, 0, UNITS, UNITS)

Scene = Literal["one", "four"]


class Views(TasksSettings):
    """Questions about a drawn picture: alone and large, or one of four in the same space, in turn."""

    kind: Literal["views"] = "views"
    asks: tuple[Ask, ...] = ("colour", "compare")
    """What is asked, in turn, as in tasks ``pictures``."""
    levels: tuple[int, ...] = (1, 2)
    """As in tasks ``pictures``."""
    scenes: tuple[Scene, ...] = Field(default=("one", "four"), min_length=1)
    """What pictures show, in turn; column ``scene``."""
    modes: bool = False
    """Each question three times, with a demonstration: answered by oneself, the turn that asks for the right part, and
    the answer after it is shown; for fine-tuning alone."""
    size: int = Field(25_000, ge=1)
    """Questions in each split."""

    _levels_are_usable = levels_within(1, LEVELS, "levels")
    _asks_are_different = asks_among(Ask)

    def build(self, split: Split, seed: int) -> ViewsSource:
        return ViewsSource(self, split, seed)


class ViewsSource(GeneratedSource[Views]):
    """``source[i]`` depends on (seed, split, i) alone. The picture that is asked about is always in the same split."""

    def __init__(self, settings: Views, split: Split, seed: int) -> None:
        super().__init__(settings, split, seed)
        drawn = Pictures(asks=settings.asks, levels=settings.levels, scale=1, size=settings.size * VIEWS)
        self.pictures: PicturesSource = drawn.build(split, seed)

    def __len__(self) -> int:
        return self.settings.size * (3 if self.settings.modes else 1)

    def __getitem__(self, index: int) -> Task:
        check_index("views", index, len(self))
        if not self.settings.modes:
            return self._asked(index)
        number, form = divmod(index, 3)
        return _in_mode(self._asked(number), form)

    def _asked(self, number: int) -> Task:
        # All asks and levels of one scene, then those of the next: each scene has them all.
        of = self.settings
        scene = of.scenes[number // (len(of.asks) * len(of.levels)) % len(of.scenes)]
        own = self.pictures[number]
        id = f"views/{self.split}/{self.seed}/{scene}/{number}"
        columns = {**own.columns, "scene": scene, "edges": WHOLE}
        if scene == "one":
            pixels, asked = enlarged(_pixels(own)), _text(own)
        else:
            place = random.Random(id).randrange(VIEWS)
            others = [_pixels(self.pictures[number + k * of.size]) for k in range(1, VIEWS)]
            pixels, asked = two_by_two([*others[:place], _pixels(own), *others[place:]]), f"{place + 1}:{_text(own)}"
            columns["edges"] = edges_of(place)
        content = [{"type": "image", "image": data_uri(pixels)}, {"type": "text", "text": asked}]
        return replace(own, id=id, messages=({"role": "user", "content": content},), columns=columns)

    def grader(self) -> Grader:
        return each(grade)


def _in_mode(task: Task, form: int) -> Task:
    """The task answered by oneself (0), up to the look (1), or after it (2)."""
    answer, call = task.columns["demonstration"], f"{TOOL}{','.join(map(str, task.columns['edges']))}"
    text = (f"{ALONE}{answer}", call, answer)[form]
    messages: tuple[Message, ...] = task.messages
    if form == 2:
        part = part_of(_pixels(task), [edge / UNITS for edge in task.columns["edges"]], SIDE)
        shown: dict[str, Any] = {"type": "image", "image": data_uri(part)}
        messages = (*messages, {"role": "assistant", "content": call}, {"role": "user", "content": [shown]})
    columns = {**task.columns, "demonstration": text}
    return replace(task, id=f"{task.id}/{form}", messages=messages, columns=columns)


def edges_of(place: int) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a quarter, in units: from the left, then the lower row."""
    left, top = place % UNITS, place // UNITS
    return left, top, left + 1, top + 1


def two_by_two(pictures: Sequence[Pixels]) -> UInt8[np.ndarray, "rows columns 3"]:
    """Four pictures of one size as one, two in each row."""
    return np.vstack([np.hstack(pictures[:UNITS]), np.hstack(pictures[UNITS:])])


def enlarged(pixels: Pixels) -> UInt8[np.ndarray, "rows columns 3"]:
    """A picture at the size of four, each pixel four times."""
    return pixels.repeat(UNITS, axis=0).repeat(UNITS, axis=1)


def _pixels(task: Task) -> Pixels:
    return read_picture(next(iter(picture_parts(task.messages))))


def _text(task: Task) -> str:
    return str(task.messages[0]["content"][-1]["text"])
