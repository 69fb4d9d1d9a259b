"""Every dataset of reasoning-gym by name, graded by its own verifier.

One worker process makes and grades the entries of all these datasets (``_reasoning_gym_worker``); the run's process
never imports reasoning-gym. Some entries depend on Python's set iteration order, or on the global random
generators: made here, they would differ between runs, and from the entries against which answers are graded.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, JudgedStep, Split, Task
from lyceum.reward.extract import Extract
from lyceum.reward.pool import WorkerError, WorkerPool
from lyceum.tasks.base import Source, check_index, kept_for_evaluation
from lyceum.utils.arithmetic import equations, is_true
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.terminal import quoted

MOST_TRIES = 1000

MAKING_SECONDS = 120.0
"""Maximum time to make one entry, and its dataset where that was not made yet."""

TAKE_ANYTHING = ("game_of_life_halting",)
"""Datasets whose verifier accepts every answer: it compares the truth values of two texts."""


class ReasoningGym(TasksSettings):
    """Tasks of one reasoning-gym dataset; combine several in a ``mixture``."""

    kind: Literal["reasoning-gym"] = "reasoning-gym"
    dataset: str
    """Name of the dataset, such as ``chain_sum``."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The dataset's own settings, such as ``{min_terms: 2, max_terms: 3}``."""
    size: int = Field(10_000, ge=1)
    """Tasks in each split."""
    answer: Extract = Extract.model_validate({"tags": "answer"})
    """Where to find the answer in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""
    system: str | None = None
    """System message before each question."""
    instruction: str = "Give the final answer inside <answer> and </answer>."
    """Text below each question; empty for nothing."""
    level: str | None = None
    """Metadata entry that is the level, such as ``num_terms``; null takes ``difficulty`` if it is a value, or
    else 1 to 5 by the entry's position in the ranges that its dataset draws from."""
    correct_at: float = Field(1.0, gt=0, le=1)
    """Minimum score of a correct answer (no unit)."""
    timeout_seconds: float = Field(10.0, gt=0)
    """Time limit for checking one answer, in seconds; one that takes longer is ungraded."""

    @model_validator(mode="after")
    def _dataset_exists(self) -> ReasoningGym:
        datasets = config_fields()
        if self.dataset not in datasets:
            raise ValueError(
                f"dataset: got {self.dataset!r}{nearest(self.dataset, datasets)}; allowed: a name of reasoning-gym: "
                f"{', '.join(datasets)}"
            )
        if self.dataset in TAKE_ANYTHING:
            raise ValueError(
                f"dataset: got {self.dataset!r}, whose verifier in reasoning-gym finds any answer right; allowed: "
                "another dataset"
            )
        fields = datasets[self.dataset]
        for name, value in self.config.items():
            if name not in fields:
                allowed = ", ".join(fields)
                raise ValueError(
                    f"config.{name}: unknown key{nearest(name, fields)} of {self.dataset!r}; allowed: {allowed}"
                )
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                raise ValueError(
                    f"config.{name}: got {quoted(value)}; allowed: text, numbers, true, false, null, and lists and "
                    "mappings of them"
                ) from None
        return self

    def build(self, split: Split, seed: int) -> ReasoningGymSource:
        return ReasoningGymSource(self, split, seed)


@functools.cache
def _process_of(owner: int) -> WorkerPool:
    return WorkerPool("lyceum.tasks._reasoning_gym_worker:worker", {}, workers=1, timeout_seconds=MAKING_SECONDS)


def process() -> WorkerPool:
    """The process that makes and grades, started by its first job and kept until the program ends.

    A fork of the run has its own: it has none of the threads that talk to the run's process.
    """
    return _process_of(os.getpid())


class ReasoningGymSource(Source):
    """``source[i]`` depends on (seed, split, i) alone. A question belongs to one split whatever the seed."""

    def __init__(self, settings: ReasoningGym, split: Split, seed: int) -> None:
        self.settings, self.split, self.seed = settings, split, seed
        self.key = f"{settings.dataset}/{split}/{seed}"
        source = {"dataset": settings.dataset, "config": settings.config, "key": self.key, "size": settings.size}
        self.source = json.dumps(source, allow_nan=False)
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
            entry = self._entry(number, index)
            if kept_for_evaluation(entry["question"]) == (self.split == "heldout"):
                return self._task(entry, number, index)
        raise RecipeError(
            f"tasks.config: no {self.split} question of {self.settings.dataset!r} in {MOST_TRIES} draws; "
            "the settings allow too few: widen them"
        )

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        """Every equation before the answer: correct where it is true. Datasets without arithmetic have none.

        The rule knows nothing of the question, so that repeating a true equation earns more each time; ``clip-delta``
        puts a bound to it.
        """
        found = equations(self.settings.answer.before(completion))
        judged = [(span, is_true(completion[slice(*span)])) for span in found]
        return tuple(JudgedStep(*span, float(right)) for span, right in judged if right is not None)

    def _entry(self, number: int, index: int) -> dict[str, Any]:
        """Question, answer and metadata. Each try is a separate dataset: some end at their size."""
        dataset = self.settings.dataset
        try:
            entry = process().submit(self._job("entry", number, index)).result()
        except WorkerError as error:
            raise WorkerError(f"tasks: entry {index} of reasoning-gym's {dataset!r} was not made: {error}") from error
        if "refused" in entry:
            raise RecipeError(
                f"tasks.config: reasoning-gym refuses {quoted(self.settings.config)} for {dataset!r}, at entry "
                f"{index}: {entry['refused']}; allowed: settings that it takes, or another dataset"
            )
        return entry

    def _job(self, do: str, number: int, index: int, **more: Any) -> dict[str, Any]:
        return {"do": do, "source": self.source, "try": number, "index": index, **more}

    def _task(self, entry: Mapping[str, Any], number: int, index: int) -> Task:
        settings = self.settings
        messages = [{"role": "user", "content": "\n".join(filter(None, (entry["question"], settings.instruction)))}]
        if settings.system is not None:
            messages.insert(0, {"role": "system", "content": settings.system})
        metadata = entry["metadata"]
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

        async def one(place: tuple[int, int], leaf: Node) -> Grade:
            job = self._job("score", *place, answer=settings.answer(leaf.completion))
            try:
                score = await process().run(job, timeout_seconds=settings.timeout_seconds)
            except WorkerError as error:
                return Grade.ungraded(str(error))
            return Grade(score, score >= settings.correct_at)

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            number, index = task.columns["entry"]
            try:
                # A replaced process has to make the entry again: that does not count as an answer's time.
                await process().run(self._job("entry", number, index))
            except WorkerError as error:
                return [Grade.ungraded(str(error)) for _ in leaves]
            return list(await asyncio.gather(*(one((number, index), leaf) for leaf in leaves)))

        return grade


@functools.cache
def config_fields() -> Mapping[str, list[str]]:
    """The datasets by name, each with the names of its own settings."""
    return process().submit({"do": "fields"}).result()


def level_in_ranges(metadata: Mapping[str, Any]) -> int | None:
    """1 to 5: average position of an entry's own values in the ranges (low, high) under ``difficulty``.

    None where the metadata has no number with such a range.
    """
    ranges = metadata.get("difficulty")
    places: list[float] = []
    for name, bounds in ranges.items() if isinstance(ranges, Mapping) else ():
        value = metadata.get(name)
        if isinstance(bounds, list | tuple) and len(bounds) == 2 and isinstance(value, int | float):
            low, high = bounds
            places.append(min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0)
    return 1 + min(4, int(5 * sum(places) / len(places))) if places else None
