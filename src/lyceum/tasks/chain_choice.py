"""Chained arithmetic as multiple choice: the result is one of four options, and the answer is its letter.

``37+8-2?A51B43C97D60=`` is answered ``37+8=45-2=43#B``: the chain as in kind ``chain``, then the letter of the
option that equals the last result. The worked chain does not depend on the order of the options; the letter does.
Options differ from each other in both digits: finding a number again is what a small model learns with effort.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Message, Split, Task
from lyceum.reward.base import each
from lyceum.tasks.base import GeneratedSource, HintsLeak, grade_after_mark, levels_within
from lyceum.tasks.chain import chain_text, draw, results_of

LETTERS = "ABCD"


class ChainChoice(TasksSettings):
    """Chained additions and subtractions modulo 100 with four options; each task has a demonstration."""

    kind: Literal["chain-choice"] = "chain-choice"
    levels: tuple[int, ...] = (0, 1, 2)
    """Numbers of operations; tasks cycle through them, so that every level has the same share. With 0 the option is
    only looked up: ``43?A51B43C97D60=`` is answered ``43#B``."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(0, 64, "numbers of operations")

    def build(self, split: Split, seed: int) -> ChainChoiceSource:
        return ChainChoiceSource(self, split, seed)


class ChainChoiceSource(GeneratedSource[ChainChoice]):
    """``source[i]`` depends on (seed, split, i) alone; its chains have the same splits as kind ``chain``."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        level = self.settings.levels[index % len(self.settings.levels)]
        start, operations = draw(rng, level, heldout=self.split == "heldout")
        return make_task(id, start, operations, draw_options(rng, result_of(start, operations)))

    def grader(self) -> Grader:
        return each(grade_after_mark)

    def reordered(self, task: Task, order: Sequence[int]) -> list[Message]:
        return [_message(task, [task.columns["options"][at] for at in order])]


def result_of(start: int, operations: Sequence[int]) -> int:
    return [start, *results_of(start, operations)][-1]


def draw_options(rng: random.Random, result: int) -> list[int]:
    """The result among numbers that share no digit with it or each other in the same place, in any order."""
    tens, units = ([own, *rng.sample([d for d in range(10) if d != own], 3)] for own in divmod(result, 10))
    options = [10 * ten + unit for ten, unit in zip(tens, units, strict=True)]
    rng.shuffle(options)
    return options


def make_task(id: str, start: int, operations: Sequence[int], options: Sequence[int]) -> Task:
    results = results_of(start, operations)
    letter = LETTERS[options.index(result_of(start, operations))]
    worked = "".join(f"{operand:+d}={result}" for operand, result in zip(operations, results, strict=True))
    columns = {
        "level": len(operations),
        "start": start,
        "operations": list(operations),
        "steps": results,
        "options": [str(option) for option in options],
        "demonstration": f"{start}{worked}#{letter}",
    }
    task = Task(id, (), letter, columns, provenance="chain-choice").with_note(HintsLeak(False))
    return task.with_messages([_message(task, columns["options"])])


def _message(task: Task, options: Sequence[str]) -> Message:
    listed = "".join(f"{letter}{option}" for letter, option in zip(LETTERS, options, strict=True))
    content = chain_text(task.columns["start"], task.columns["operations"], f"?{listed}")
    return {"role": "user", "content": content}
