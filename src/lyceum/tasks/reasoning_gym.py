"""Every dataset of reasoning-gym by name, graded by its own verifier.

The verifier runs in a process of its own, with a time limit. Some of reasoning-gym's verifiers hand an answer to
Python's ``eval``, or to sympy's parser, which evaluates it: there, an answer is read as a literal, or must be plain
mathematics (see ``shield``). A model's text is never run.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

from pydantic import Field, model_validator

from lyceum.component import Component, RecipeError, nearest
from lyceum.reward.extract import Extract
from lyceum.reward.pool import WorkerError, shared_pool
from lyceum.tasks.prompt import with_hint_below
from lyceum.tasks.split import Split, check_index, kept_for_evaluation
from lyceum.tree import Node
from lyceum.types import Grade, Grader, Task

MOST_TRIES = 1000

EVALUATED = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
"""Datasets whose verifier evaluates an answer that should be a Python list."""
PARSED_BY_SYMPY = (
    "countdown",
    "intermediate_integration",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
)
"""Datasets whose verifier gives an answer to sympy's parser, which evaluates it as Python."""

TAKE_ANYTHING = ("game_of_life_halting",)
"""Datasets whose verifier finds every answer right: it compares the truth values of two texts."""

# Numbers, single letters, functions and operators: no attribute, no string, no index, no other name. Possessive
# repeats, which never try again: open ones take exponential time on a long number before a wrong character.
_MATHEMATICS = re.compile(
    r"(?:\d++(?:\.\d*+)?|\.\d++|(?:sin|cos|tan|exp|log|ln|sqrt|asin|acos|atan|sinh|cosh|tanh|pi|[A-Za-z])(?![\w.])"
    r"|[-+*/^()\s])*+"
)


class ReasoningGym(Component, room="tasks"):
    """Tasks of one reasoning-gym dataset; several go together in a ``mixture``."""

    kind: Literal["reasoning-gym"] = "reasoning-gym"
    dataset: str
    """Name of the dataset, such as ``chain_sum``."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The dataset's own settings, such as ``{min_terms: 2, max_terms: 3}``."""
    size: int = Field(10_000, ge=1)
    """Tasks in each split."""
    answer: Extract = Extract.model_validate({"tags": "answer"})
    """Where the answer stands in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""
    system: str | None = None
    """A system message before each question."""
    instruction: str = "Give the final answer inside <answer> and </answer>."
    """What stands below each question; empty for nothing."""
    level: str | None = None
    """Entry of the metadata that is the level, such as ``num_terms``; null takes ``difficulty`` if it is a value, or
    else 1 to 5 by where the entry stands in the ranges that its dataset draws from."""
    correct_at: float = Field(1.0, gt=0, le=1)
    """Score from which on an answer counts as correct (no unit)."""
    timeout_seconds: float = Field(10.0, gt=0)
    """Longest time for the check of one answer, in seconds; one that takes longer is ungraded."""

    @model_validator(mode="after")
    def _dataset_exists(self) -> ReasoningGym:
        fields = _config_fields(self.dataset)
        if self.dataset in TAKE_ANYTHING:
            raise ValueError(
                f"dataset: got {self.dataset!r}, whose verifier in reasoning-gym finds any answer right; allowed: "
                "another dataset"
            )
        for name in self.config:
            if name not in fields:
                allowed = ", ".join(fields)
                raise ValueError(
                    f"config.{name}: unknown key{nearest(name, fields)} of {self.dataset!r}; allowed: {allowed}"
                )
        return self

    def build(self, split: Split, seed: int) -> ReasoningGymSource:
        return ReasoningGymSource(self, split, seed)


class Entries:
    """Entries of a dataset, by try and index. A try is a dataset of its own: some end at their size."""

    def __init__(self, dataset: str, config: Mapping[str, Any], key: str, size: int) -> None:
        self.dataset, self.config, self.key, self.size = dataset, dict(config), key, size
        self._tries: dict[int, Any] = {}
        self._latest: tuple[tuple[int, int] | None, dict[str, Any]] = (None, {})

    def of_try(self, number: int) -> Any:
        """The dataset of a try; raises what reasoning-gym raises on settings that it refuses."""
        if number not in self._tries:
            from reasoning_gym import create_dataset

            # reasoning-gym draws entry i from seed + i: seeds must lie far apart, or two tries share entries.
            digest = blake2b(f"{self.key}/{number}".encode(), digest_size=4).digest()
            seed = int.from_bytes(digest, "big") >> 1
            self._tries[number] = create_dataset(self.dataset, **self.config, seed=seed, size=self.size)
        return self._tries[number]

    def __call__(self, number: int, index: int) -> dict[str, Any]:
        # The answers of a group come one after another; some entries take seconds to make.
        if self._latest[0] != (number, index):
            self._latest = ((number, index), self.of_try(number)[index])
        return self._latest[1]


class ReasoningGymSource:
    """``source[i]`` follows from (seed, split, i) alone. A question belongs to one split whatever the seed."""

    def __init__(self, settings: ReasoningGym, split: Split, seed: int) -> None:
        self.settings, self.split, self.seed = settings, split, seed
        self.key = f"{settings.dataset}/{split}/{seed}"
        self.entries = Entries(settings.dataset, settings.config, self.key, settings.size)
        try:
            self.entries.of_try(0)
        except Exception as error:
            raise RecipeError(
                f"tasks.config: reasoning-gym refuses {settings.config} for {settings.dataset!r}: "
                f"{type(error).__name__}: {error}"
            ) from error
        first = self[0]
        if settings.level is not None and settings.level not in first.columns:
            metadata = ", ".join(first.columns["metadata"])
            raise RecipeError(
                f"tasks.level: got {settings.level!r}{nearest(settings.level, first.columns['metadata'])}; "
                f"allowed: {metadata}"
            )

    def __len__(self) -> int:
        return self.settings.size

    def __getitem__(self, index: int) -> Task:
        check_index(f"reasoning-gym {self.settings.dataset}", index, len(self))
        for number in range(MOST_TRIES):
            entry = self.entries(number, index)
            if kept_for_evaluation(entry["question"]) == (self.split == "heldout"):
                return self._task(entry, number, index)
        raise RecipeError(
            f"tasks.config: no {self.split} question of {self.settings.dataset!r} in {MOST_TRIES} draws; "
            "the settings allow too few: widen them"
        )

    def _task(self, entry: Mapping[str, Any], number: int, index: int) -> Task:
        settings = self.settings
        messages = [{"role": "user", "content": "\n".join(filter(None, (entry["question"], settings.instruction)))}]
        if settings.system is not None:
            messages.insert(0, {"role": "system", "content": settings.system})
        metadata = _plain(entry["metadata"])
        columns: dict[str, Any] = {"metadata": metadata, "entry": [number, index]}
        if settings.level is not None and settings.level in metadata:
            columns["level"] = columns[settings.level] = metadata[settings.level]
        elif isinstance(metadata.get("difficulty"), int | float | str):
            columns["level"] = metadata["difficulty"]
        elif (level := level_in_ranges(metadata)) is not None:
            columns["level"] = level
        id = f"reasoning-gym/{self.key}/{index}"
        return Task(id, tuple(messages), entry["answer"], columns, provenance=settings.dataset)

    def grader(self) -> Grader:
        settings = self.settings
        # The worker makes the entry again from its place: an entry's metadata may hold what no message can.
        pool = shared_pool(
            "lyceum.tasks.reasoning_gym:checker",
            {"dataset": settings.dataset, "config": settings.config, "key": self.key, "size": settings.size},
            workers=1,
            timeout_seconds=settings.timeout_seconds,
        )

        async def one(task: Task, leaf: Node) -> Grade:
            number, index = task.columns["entry"]
            try:
                score = await pool.run({"try": number, "index": index, "answer": settings.answer(leaf.completion)})
            except WorkerError as error:
                return Grade.ungraded(str(error))
            return Grade(score, score >= settings.correct_at)

        async def grade(task: Task, leaves: Sequence[Node]) -> list[Grade]:
            return list(await asyncio.gather(*(one(task, leaf) for leaf in leaves)))

        return grade

    def hinted(self, task: Task, hint: Mapping[str, str]) -> Task:
        return with_hint_below(task, hint)


def checker(dataset: str, config: dict[str, Any], key: str, size: int) -> Callable[[dict[str, Any]], float]:
    """What a worker does: the dataset's own score of an answer (None: there is none), in 0 .. 1.

    An answer that the verifier fails on (a word where it reads numbers) is worth 0, if it can grade the entry's own:
    then it is the answer that cannot be read.
    """
    entries = Entries(dataset, config, key, size)
    readable = shield(dataset, entries.of_try(0))

    def check(job: dict[str, Any]) -> float:
        answer = job["answer"] if job["answer"] is None or readable(job["answer"]) else None
        number, index = job["try"], job["index"]
        score, entry = entries.of_try(number).score_answer, entries(number, index)
        try:
            return float(score(answer, entry))
        except (MemoryError, RecursionError):
            raise  # a limit was met, which says nothing of the answer
        except Exception:
            score(entry["answer"], entry)  # raises where it is the verifier that is wrong, or the entry
            return 0.0

    return check


def shield(name: str, dataset: Any) -> Callable[[str], bool]:
    """Keep a dataset's verifier from evaluating a model's text; returns which answers it may see at all.

    Where it calls ``eval``, its module gets a name of its own for it, which reads literals and nothing else. Where it
    calls sympy's parser, an answer must be plain mathematics; what is not counts as no answer.
    """
    if name in EVALUATED:
        vars(sys.modules[type(dataset).__module__])["eval"] = ast.literal_eval
    if name in PARSED_BY_SYMPY:
        return lambda answer: _MATHEMATICS.fullmatch(answer) is not None
    return lambda answer: True


def _config_fields(dataset: str) -> list[str]:
    """Names of a dataset's own settings. Raises ValueError where there is no such dataset."""
    from reasoning_gym.factory import DATASETS

    names = sorted(set(DATASETS) - {"composite"})
    if dataset not in names:
        raise ValueError(
            f"dataset: got {dataset!r}{nearest(dataset, names)}; allowed: a name of reasoning-gym: {', '.join(names)}"
        )
    return [field.name for field in dataclasses.fields(DATASETS[dataset][1]) if field.name not in ("seed", "size")]


def _plain(value: Any) -> Any:
    """What JSON can hold; anything else as its text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value)


def level_in_ranges(metadata: Mapping[str, Any]) -> int | None:
    """1 to 5: where an entry's own figures stand, on average, in the ranges (low, high) under ``difficulty``.

    None where the metadata gives no figure with a range of its own.
    """
    ranges = metadata.get("difficulty")
    places: list[float] = []
    for name, bounds in ranges.items() if isinstance(ranges, Mapping) else ():
        value = metadata.get(name)
        if isinstance(bounds, list | tuple) and len(bounds) == 2 and isinstance(value, int | float):
            low, high = bounds
            places.append(min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0)
    return 1 + min(4, int(5 * sum(places) / len(places))) if places else None
