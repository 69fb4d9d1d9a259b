"""Drawn pictures with the answers of several specialists in the prompt, and pictures whose field is asked for (triage).

``count? 5 5 6`` under a picture is ``count?`` with three specialists' answers. Each is right as often as its
reliability says, and they stand in one order, so that a model can learn whom to believe. Demonstrations take over what
most say (``#5``), right or wrong, or look for themselves (``2,0,2,1#5``). ``whose?`` under a picture is answered by the
field of what it shows: ``#digits``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Split, Task
from lyceum.papers.mmedagent_rl.tasks_advised_chains import Trust, most_say
from lyceum.reward.base import each
from lyceum.tasks.base import GeneratedSource, asks_among, check_index, levels_within
from lyceum.tasks.pictures import LEVELS, Ask, Pictures, PicturesSource, grade, other_answers

FIELDS: Mapping[Ask, str] = {
    **dict.fromkeys(("count", "colour", "compare", "where", "list"), "shapes"),
    "chart": "bars",
    "path": "arrows",
    "sum": "digits",
}
"""The field of what a question's picture shows."""
TRIAGE = "whose?"

_Share = Annotated[float, Field(gt=0, lt=1)]


class AdvisedPictures(TasksSettings):
    """Questions about drawn pictures under specialists' answers, and triage: whose field a picture is of."""

    kind: Literal["advised-pictures"] = "advised-pictures"
    asks: tuple[Ask, ...] = ("colour", "compare", "path", "sum")
    """What is asked, in turn, as in tasks ``pictures``."""
    levels: tuple[int, ...] = (1, 2)
    """As in tasks ``pictures``."""
    reliability: tuple[_Share, ...] = Field(default=(0.9, 0.7, 0.5), min_length=2, max_length=9)
    """How often each specialist is right where some are and some are not, before that condition; they stand in this
    order. Wrong answers are of the same kind as the right one, and drawn apart from each other."""
    trust: tuple[Trust | Literal["triage"], ...] = Field(default=("triage", "easy", "medium", "hard"), min_length=1)
    """Tasks in turn: ``triage``; ``easy`` where all specialists are right, ``medium`` where some are, ``hard`` where
    none is."""
    follows: float = Field(default=0.5, ge=0, le=1)
    """Share of the demonstrations that say what most specialists say; the others look."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, LEVELS, "levels")
    _asks_are_different = asks_among(Ask)

    def build(self, split: Split, seed: int) -> AdvisedPicturesSource:
        return AdvisedPicturesSource(self, split, seed)


class AdvisedPicturesSource(GeneratedSource[AdvisedPictures]):
    """``source[i]`` depends on (seed, split, i) alone. Columns ``trust`` and ``field``; of advised ones ``advice`` and
    ``majority``, which in triage is the answer."""

    def __init__(self, settings: AdvisedPictures, split: Split, seed: int) -> None:
        super().__init__(settings, split, seed)
        pictures = Pictures(asks=settings.asks, levels=settings.levels, scale=1, size=settings.size)
        self.pictures: PicturesSource = pictures.build(split, seed)

    def __getitem__(self, index: int) -> Task:
        check_index("advised-pictures", index, len(self))
        of, task = self.settings, self.pictures[index]
        # All asks and levels at one trust, then those at the next.
        trust = of.trust[index // (len(of.asks) * len(of.levels)) % len(of.trust)]
        field = FIELDS[task.columns["ask"]]
        picture, asked = task.messages[0]["content"]
        columns = {**task.columns, "trust": trust, "field": field}
        answer, rng = str(task.answer), random.Random(f"{task.id}/advice")
        if trust == "triage":
            answer, text = field, TRIAGE
            columns |= {"majority": field, "steps": [], "demonstration": f"#{field}"}
        else:
            advice = advised(rng, answer, other_answers_to(task, asked["text"]), of.reliability, trust)
            majority = most_say(advice)
            text = " ".join([asked["text"], *advice])
            columns |= {"majority": majority, "advice": advice}
            if rng.random() < of.follows:
                columns["demonstration"] = f"#{majority}"
        content = [picture, {"type": "text", "text": text}]
        id = f"advised-{task.id}"
        return replace(task, id=id, messages=({"role": "user", "content": content},), answer=answer, columns=columns)

    def grader(self) -> Grader:
        return each(grade)


def other_answers_to(task: Task, asked: str) -> list[str]:
    """What a specialist may say who is wrong."""
    if task.columns["ask"] == "compare":
        return [colour for colour in asked.removesuffix("?").split(" or ") if colour != task.answer]
    return other_answers(str(task.answer))


def advised(
    rng: random.Random, answer: str, others: Sequence[str], reliability: Sequence[float], trust: Trust
) -> list[str]:
    """The specialists' answers, in their order; a wrong one says one of the others."""
    right = [trust == "easy"] * len(reliability)
    while trust == "medium" and len(set(right)) == 1:
        right = [rng.random() < share for share in reliability]
    return [answer if is_right else rng.choice(others) for is_right in right]
