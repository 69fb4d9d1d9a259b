"""Tasks without those that are evaluated on in other words, and without those whose solutions do not agree."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from lyceum.core.component import Settings, slot
from lyceum.core.settings import TasksSettings
from lyceum.core.solution import Solution
from lyceum.core.sources import checked_tasks, sources_of
from lyceum.core.tree import Node
from lyceum.core.types import Grader, GradingContext, Hint, LeftOut, Origin, Split, Task, TaskSource
from lyceum.papers.deepmath_103k._near_duplicates import Likeness, Neighbour
from lyceum.papers.deepmath_103k._same_problem import AtLoad, SameProblem
from lyceum.reward.scorer.base import question_of
from lyceum.tasks.base import Source, check_index
from lyceum.utils.aio import gather, run_async
from lyceum.utils.errors import RecipeError
from lyceum.utils.terminal import printable, quoted

log = logging.getLogger(__name__)

REASONS = ("alike", "judged", "unread", "disputed")
"""Why tasks are left out, as summary.json and the metrics name it: evaluated on in other words, by likeness, by a
judge's verdict, or for all that is known, since no reply of the judge could be read; solutions that do not agree."""
SHOWN = 80
"""Characters that are shown of a problem that is left out."""


class Near(Likeness):
    """Which tasks are evaluated on: those that are alike enough, or that a judge finds among the most similar ones."""

    nearest: int = Field(default=5, ge=1, le=1000)
    """Number of evaluated problems that each task is compared with, the most similar ones."""
    same_from: float | None = Field(default=0.5, gt=0, le=1)
    """Likeness from which a task counts as the same problem unasked; null: the judge alone decides."""
    judged_from: float = Field(default=0.0, ge=-1, le=1)
    """Likeness below which the judge is not asked."""
    judge: SameProblem | None = None
    """Who says of the others whether they are the same problem; null: they are not."""

    @model_validator(mode="after")
    def _somebody_decides(self) -> Near:
        if self.same_from is None and self.judge is None:
            raise ValueError("same_from: got null without a judge; allowed: a likeness, or a judge")
        return self


class AgreeingSolutions(Settings):
    """Solutions that come with a task: each has to be right by the task's own answer."""

    columns: tuple[str, ...] = Field(("r1_solution_1", "r1_solution_2", "r1_solution_3"), min_length=1)
    """The task's columns with a solution, or a list of them."""
    least: int = Field(3, ge=1)
    """Number of solutions that a task needs."""

    def of(self, task: Task) -> list[str]:
        cells = [task.columns.get(column) for column in self.columns]
        listed = [each for cell in cells for each in (cell if isinstance(cell, list | tuple) else [cell])]
        return [text for text in listed if isinstance(text, str) and text.strip()]


class Curated(TasksSettings):
    """The training tasks of a source without those that are evaluated on in other words (``near``), and those whose
    given solutions do not agree with their answer (``solutions``). Held-out tasks are the source's own.

    Equal problems of one dataset are left out without this. What is left out is counted by its reason in the metrics
    of the first step (``tasks/alike``, ``tasks/judged``, ``tasks/unread``, ``tasks/disputed``), and the first of it is
    named in the log and in ``left_out`` of summary.json.

    Source:
        DeepMath-103K, arXiv:2504.11456: an encoder finds the most similar problems of the benchmarks, a language model
        is asked in both orders whether two are the same; answers are kept on which several solutions agree.
    """

    kind: Literal["curated"] = "curated"
    tasks: Annotated[TasksSettings, slot("tasks")]
    """The tasks to choose from."""
    against: Annotated[TasksSettings, slot("tasks")] | None = None
    """Tasks that are evaluated on, of a file all rows; several as a mixture. Null: the held-out ones of ``tasks``."""
    benchmark: int = Field(1000, ge=1)
    """Number of them, where they are generated; of a dataset all are compared."""
    near: Near | None = Near()
    """How those are found that are evaluated on; null leaves none out."""
    solutions: AgreeingSolutions | None = None
    """Solutions that have to agree; null asks for none."""

    def check_paths(self) -> None:
        for tasks in self._named():
            tasks.check_paths()

    def paths(self) -> frozenset[str]:
        return self.tasks.paths()

    def whole(self, trained: Collection[str] = ()) -> Curated:
        return self.model_copy(update={"tasks": self.tasks.whole(trained)})

    def build(self, split: Split, seed: int) -> TaskSource:
        """The tasks are compared at the first look at the source: a command that needs its grader alone does not."""
        source = self.tasks.build(split, seed)
        if split == "heldout":
            return source
        if self.near is not None:
            self.near.check_files()
            if self.near.judge is not None:
                self.near.judge.check_files()

        def evaluated() -> TaskSource:
            against = self.tasks if self.against is None else self.against.whole(self.tasks.paths())
            return against.build("heldout", seed)

        return CuratedSource(source, lambda: _choose(self, source, evaluated))

    def _named(self) -> Iterator[TasksSettings]:
        yield self.tasks
        if self.against is not None:
            yield self.against


@dataclass(frozen=True)
class _Choice:
    """What is left out.

    Attributes:
        out: ids of the tasks.
        left_out: how many, by their reasons.
    """

    out: frozenset[str]
    left_out: LeftOut


class CuratedSource(Source):
    """A source without some of its tasks, whose ids stay. It is a mixture of that one source (``Mixed``).

    Args:
        choose: what is left out; called once, at the first look.
    """

    def __init__(self, source: TaskSource, choose: Callable[[], _Choice]) -> None:
        self.source, self.choose = source, choose

    @cached_property
    def choice(self) -> _Choice:
        return self.choose()

    @cached_property
    def kept(self) -> list[int]:
        """The tasks that are left, by their places in the source."""
        out = self.choice.out
        return [place for place in range(len(self.source)) if self.source[place].id not in out]

    @property
    def left_out(self) -> LeftOut:
        return self.choice.left_out

    @property
    def sources(self) -> Sequence[TaskSource]:
        return [self.source]

    def own(self, task: Task) -> tuple[TaskSource, Task]:
        return self.source, task

    def with_sources(self, sources: Sequence[TaskSource]) -> CuratedSource:
        """The same choice among rows of which others may have been left out since."""
        [source] = sources
        choice = self.choice
        return self if source is self.source else CuratedSource(source, lambda: choice)

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> Task:
        check_index("curated", index, len(self))
        return self.source[self.kept[index]]

    def row(self, index: int) -> Mapping[str, Any] | None:
        return self.source.row(self.kept[index])

    def grader(self) -> Grader:
        return self.source.grader()

    def imitated(self, task: Task) -> str | None:
        return self.source.imitated(task)

    def hinted(self, task: Task, hint: Hint) -> Task:
        return self.source.hinted(task, hint)

    def solution(self, task: Task) -> Solution | None:
        return self.source.solution(task)


@dataclass
class _Found:
    """What is left out while it is found: task id -> reason, and the first of them in words."""

    reasons: dict[str, str] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)

    def leave_out(self, task: Task, reason: str, told: str) -> None:
        self.reasons[task.id] = reason
        if len(self.named) < LeftOut.NAMED:
            self.named.append(f"{quoted(task.id)}: {told}")

    def count(self, reason: str) -> int:
        return sum(found == reason for found in self.reasons.values())


def _choose(settings: Curated, source: TaskSource, evaluated: Callable[[], TaskSource]) -> _Choice:
    """What the settings leave out.

    Raises:
        RecipeError: everything.
        RunError: the judge's endpoint failed, or its calls or cost are spent.
    """
    tasks, found = [source[place] for place in range(len(source))], _Found()
    if settings.near is not None:
        of = evaluated()
        others = [part[i] for part in sources_of(of) for i in checked_tasks(part, settings.benchmark)]
        run_async(_leave_out_evaluated(settings.near, tasks, others, found))
    if settings.solutions is not None:
        left = [task for task in tasks if task.id not in found.reasons]
        run_async(_leave_out_disputed(settings.solutions, left, source.grader(), found))
    counts: dict[str, int] = {reason: found.count(reason) for reason in REASONS}
    if tasks and len(found.reasons) == len(tasks):
        raise RecipeError(
            f"tasks: every task is left out, the first are {'; '.join(found.named)}; allowed: other tasks"
        )
    if found.reasons:
        told = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count)
        first = printable("; ".join(found.named))
        log.warning("tasks: %d of %d are left out: %s; the first are %s", len(found.reasons), len(tasks), told, first)
    left_out = LeftOut(chosen=counts, not_taken=tuple(found.named)) if found.reasons else LeftOut()
    return _Choice(frozenset(found.reasons), left_out)


async def _leave_out_evaluated(near: Near, tasks: Sequence[Task], others: Sequence[Task], found: _Found) -> None:
    """Leave out what is the same problem as one of the others."""
    texts, evaluated = ([question_of(task.messages) for task in of] for of in (tasks, others))
    judge = None if near.judge is None else near.judge.build()

    async def reason(text: str, neighbours: Sequence[Neighbour]) -> tuple[str, int] | None:
        """Why a text is left out, and the problem that it is, by its place; None where it is not."""
        if near.same_from is not None and neighbours and neighbours[0].likeness >= near.same_from:
            return "alike", neighbours[0].place
        unread = None
        for place, likeness in neighbours if judge is not None else ():
            if likeness < near.judged_from:
                break
            assert judge is not None
            verdict = await judge.same(text, evaluated[place])
            if verdict:
                return "judged", place
            if verdict is None and unread is None:
                unread = place
        # A task that may be evaluated on is not trained.
        return None if unread is None else ("unread", unread)

    nearest = near.neighbours(texts, evaluated, near.nearest)
    reasons = await gather([reason(text, of) for text, of in zip(texts, nearest, strict=True)])
    for task, text, why in zip(tasks, texts, reasons, strict=True):
        if why is not None:
            name, place = why
            told = f"{quoted(text[:SHOWN])} is {name} to be {quoted(evaluated[place][:SHOWN])}"
            found.leave_out(task, name, told)


async def _leave_out_disputed(
    settings: AgreeingSolutions, tasks: Sequence[Task], grader: Grader, found: _Found
) -> None:
    """Leave out tasks with too few solutions, or one that the task's own verifier does not find right."""
    context = cast(GradingContext, AtLoad())

    async def told(task: Task) -> str | None:
        solutions = settings.of(task)
        if len(solutions) < settings.least:
            return f"{len(solutions)} solutions in {', '.join(settings.columns)}, not {settings.least}"
        prompt = Node.prompt(())
        leaves = [prompt.add((number,), Origin.TEACHER, text) for number, text in enumerate(solutions)]
        right = sum(bool(grade.correct) for grade in await grader(task, leaves, context))
        return None if right == len(solutions) else f"{right} of {len(solutions)} solutions have its answer"

    for task, why in zip(tasks, await gather([told(task) for task in tasks]), strict=True):
        if why is not None:
            found.leave_out(task, "disputed", why)
