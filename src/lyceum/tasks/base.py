"""What task sources share: hints and solutions from the tasks' columns, the split of problems, random draws."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_args

import numpy as np
from jaxtyping import Bool, UInt
from pydantic import field_validator

from lyceum.core.notes import Note
from lyceum.core.solution import Solution, written_solution
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Hint, JudgedStep, Split, Task
from lyceum.tasks.prompt import with_hint_below
from lyceum.utils.errors import RecipeError

_MOST_TRIES = 10_000

PARTS = 10_000
"""Parts that problems are divided into; a share of the parts is held out."""


@dataclass(frozen=True)
class HintsLeak(Note):
    """Whether the source's own hints reveal the answer of a task. Written by sources, read by guides, which without it
    search the hints for the answer's text."""

    kind: ClassVar[str] = "hints-leak"
    leak: bool


class Source:
    """A source adds ``__len__``, ``__getitem__`` and ``grader``."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Task:
        raise NotImplementedError

    def grader(self) -> Grader:
        raise NotImplementedError

    def row(self, index: int) -> Mapping[str, Any] | None:
        return None

    def imitated(self, task: Task) -> str | None:
        text = task.columns.get("demonstration")
        return text if isinstance(text, str) else None

    def hinted(self, task: Task, hint: Hint) -> Task:
        return with_hint_below(task, hint)

    def solution(self, task: Task) -> Solution | None:
        return written_solution(task)


class _Generator(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def size(self) -> int: ...

    def model_dump_json(self, *, serialize_as_any: bool = False) -> str: ...


_Settings = TypeVar("_Settings", bound=_Generator)


class GeneratedSource(Source, Generic[_Settings]):
    """``source[i]`` depends on (seed, split, i) alone. A source adds ``__getitem__`` and ``grader``."""

    def __init__(self, settings: _Settings, split: Split, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.split: Split = split

    def __len__(self) -> int:
        return self.settings.size

    @property
    def tasks_key(self) -> Hashable | None:
        return (type(self), self.settings.model_dump_json(serialize_as_any=True), self.split, self.seed)

    def key(self, index: int) -> str:
        """All that a task depends on beside the settings.

        Raises:
            IndexError: outside 0 .. size - 1, which also ends a ``for`` loop over the source.
        """
        check_index(self.settings.kind, index, len(self))
        return f"{self.settings.kind}/{self.split}/{self.seed}/{index}"


def checksum(problem: str) -> int:
    """The number by which a problem is on one side of a split: independent of seed, order and size."""
    return zlib.crc32(problem.encode())


def kept_for_evaluation(problem: str, share: float = 0.1) -> bool:
    """Whether a problem of a source without an end is held out: that share of all that may be drawn."""
    return checksum(problem) % PARTS < share * PARTS


def held_out(checksums: UInt[np.ndarray, " row"], share: float) -> Bool[np.ndarray, " row"]:
    """Which rows are held out, of problems that are all known: those of the lowest checksums, to the nearest number.

        round(share * P) of the P problems; a half is rounded up

    All rows of one problem are on one side. A larger share holds out the same problems and more.
    """
    problems = np.unique(checksums)
    wanted = math.floor(share * len(problems) + 0.5)
    return checksums <= problems[wanted - 1] if wanted else np.zeros(len(checksums), bool)


def draw(
    key: str, split: Split, make: Callable[[random.Random], Task | None], *, problem: Callable[[Task], str]
) -> Task:
    """The first task from ``make`` that belongs to the split: a pure function of the key.

    Raises:
        RecipeError: no try out of many belongs to the split: the settings allow too few problems.
    """
    rng = random.Random(key)
    for _ in range(_MOST_TRIES):
        task = make(rng)
        if task is not None and kept_for_evaluation(problem(task)) == (split == "heldout"):
            return task
    raise RecipeError(
        f"tasks: no {split} problem in {_MOST_TRIES} draws for {key!r}; the bounds allow too few problems: widen them"
    )


def grade_after_mark(task: Task, leaf: Node, steps: tuple[JudgedStep, ...] = ()) -> Grade:
    """1 where everything after the first ``#`` is the answer, to the letter; truncated completions are never correct.

    Args:
        steps: what is judged of the completion beside.
    """
    answer = leaf.completion.partition("#")[2].strip()
    correct = leaf.finish != "length" and answer == task.answer
    outcome = float(correct)
    return Grade(outcome, correct, steps=steps, parts={"answer": outcome}, answered=bool(answer))


def check_levels(levels: Sequence[int], lowest: int, highest: int, what: str) -> None:
    """Raise ValueError unless the levels are distinct numbers within the bounds, at least one."""
    if not levels or len(set(levels)) < len(levels) or not all(lowest <= level <= highest for level in levels):
        raise ValueError(f"got {list(levels)}; allowed: different {what} from {lowest} to {highest}, at least one")


def levels_within(lowest: int, highest: int, what: str) -> Any:
    """A validator of the setting ``levels``: :func:`check_levels`."""

    def usable(levels: tuple[int, ...]) -> tuple[int, ...]:
        check_levels(levels, lowest, highest, what)
        return levels

    return field_validator("levels")(usable)


def asks_among(allowed: Any) -> Any:
    """A validator of the setting ``asks``: different ones, at least one.

    Args:
        allowed: their ``Literal``.
    """

    def usable(asks: tuple[str, ...]) -> tuple[str, ...]:
        if not asks or len(set(asks)) < len(asks):
            known = ", ".join(get_args(allowed))
            raise ValueError(f"got {list(asks)}; allowed: different ones of {known}, at least one")
        return asks

    return field_validator("asks")(usable)


def check_index(name: str, index: int, size: int) -> None:
    """Raise IndexError outside 0 .. size - 1, which also ends a ``for`` loop over a source."""
    if not 0 <= index < size:
        raise IndexError(f"{name}: task {index}; there are 0 to {size - 1}")


def rounded(rng: random.Random, value: float) -> int:
    """Stochastic rounding: the fraction is the probability of rounding up."""
    whole = math.floor(value)
    return whole + (rng.random() < value - whole)
