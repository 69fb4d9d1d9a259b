"""What only some task sources can do, and mixtures taken apart.

Every :class:`~lyceum.core.types.TaskSource` makes, hints and grades its tasks. An ability that only some have is a
protocol: here where several components read it, else in the file of the one that does. A component asks the source
that a task is from (:func:`source_of`), or all of them (:func:`sources_of`), by ``isinstance``; a mixture says what it
is made of once, for every ability.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt

from lyceum.core.types import Exchange, JudgedStep, LeftOut, PromptReader, Task, TaskSource


@runtime_checkable
class Mixed(Protocol):
    """A task source made of others."""

    @property
    def sources(self) -> Sequence[TaskSource]: ...

    def own(self, task: Task) -> tuple[TaskSource, Task]:
        """The source that a task is from, and the task under the id that it has there."""
        ...

    def with_sources(self, sources: Sequence[TaskSource]) -> TaskSource:
        """The same mixture of other sources, as many as before."""
        ...


@runtime_checkable
class Reproducible(Protocol):
    """A task source that may know all that its tasks depend on."""

    @property
    def tasks_key(self) -> Hashable | None:
        """Sources in which it is equal have the same tasks; None where that is not known, as of files."""
        ...


@runtime_checkable
class Filtered(Protocol):
    """A task source that leaves tasks out."""

    @property
    def left_out(self) -> LeftOut:
        """The tasks that are left out, or not whole; of a mixture those that it leaves out itself."""
        ...


@runtime_checkable
class FromRows(Protocol):
    """A task source whose tasks are a dataset's rows, which may be unfit, or stand in two splits."""

    @property
    def gradable(self) -> bool:
        """Whether there are answers to compare with: without them ``grader`` raises."""
        ...

    @property
    def conversational(self) -> bool:
        """Whether prompts are chat messages in the dataset: reward functions written for TRL then get messages too."""
        ...

    @property
    def left_out(self) -> LeftOut:
        """The rows that are not among the tasks, or not whole, because they cannot be used as they are."""
        ...

    def prompt_hashes(self) -> UInt[np.ndarray, " task"]:
        """Hashes of what the tasks ask, as :meth:`without` compares it. No property: ``isinstance`` would read it."""
        ...

    def without(self, hashes: UInt[np.ndarray, " other"]) -> TaskSource:
        """The same tasks without those that ask what others ask, by the hashes of these.

        Raises:
            RecipeError: none would be left.
        """
        ...

    def fitted(self, prompts: PromptReader) -> TaskSource:
        """The same tasks without those whose prompts are too long for the model, or with these cut, as the settings
        have it.

        Raises:
            RecipeError: a prompt that the model cannot read, where the settings refuse it.
        """
        ...


@runtime_checkable
class JudgesSteps(Protocol):
    """A task source with a rule that says which steps of a completion are correct."""

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        """The steps that the rule finds in a completion's text, in order: 1 correct, 0 incorrect."""
        ...


@runtime_checkable
class ShowsEpisodes(Protocol):
    """A task source with worked episodes of several turns, which fine-tuning imitates instead of a completion."""

    def episode(self, task: Task) -> Sequence[Exchange]:
        """What the assistant says, and what it is answered; the answer to its last turn is not read. At least one."""
        ...


def sources_of(source: TaskSource) -> list[TaskSource]:
    """The sources that a mixture is made of; a source alone where it is none."""
    if isinstance(source, Mixed):
        return [one for part in source.sources for one in sources_of(part)]
    return [source]


def source_of(source: TaskSource, task: Task) -> tuple[TaskSource, Task]:
    """The source that a task is from, and the task under the id that it has there."""
    return source_of(*source.own(task)) if isinstance(source, Mixed) else (source, task)


def of_rows(source: TaskSource) -> list[FromRows]:
    """Those of a source's sources whose tasks are a dataset's rows."""
    return [one for one in sources_of(source) if isinstance(one, FromRows)]


def gradable(source: TaskSource) -> bool:
    """Whether all tasks have answers to compare with."""
    return all(rows.gradable for rows in of_rows(source))


def left_out(source: TaskSource) -> LeftOut:
    """The tasks that are left out, or not whole."""
    own = source.left_out if isinstance(source, Filtered) else LeftOut()
    return own + sum((left_out(part) for part in source.sources), LeftOut()) if isinstance(source, Mixed) else own


def prompt_hashes(source: TaskSource) -> UInt[np.ndarray, " task"]:
    """Hashes of what the tasks from datasets ask."""
    return np.concatenate([np.zeros(0, np.uint64), *(rows.prompt_hashes() for rows in of_rows(source))])


def without(source: TaskSource, asked: UInt[np.ndarray, " other"]) -> TaskSource:
    """The same tasks without a dataset's that ask what others ask, by the hashes of these (:func:`prompt_hashes`)."""
    return _changed(source, lambda rows: rows.without(asked))


def fitted(source: TaskSource, prompts: PromptReader) -> TaskSource:
    """The same tasks without a dataset's whose prompts are too long for the model, or with these cut."""
    return _changed(source, lambda rows: rows.fitted(prompts))


def checked_tasks(source: TaskSource, most: int) -> range:
    """The tasks that a check reads: all of a dataset, where each row is another; the first of a generator's, whose
    tasks are alike."""
    return range(len(source) if isinstance(source, FromRows) else min(len(source), most))


def _changed(source: TaskSource, change: Callable[[FromRows], TaskSource]) -> TaskSource:
    if isinstance(source, Mixed):
        return source.with_sources([_changed(part, change) for part in source.sources])
    return change(source) if isinstance(source, FromRows) else source
