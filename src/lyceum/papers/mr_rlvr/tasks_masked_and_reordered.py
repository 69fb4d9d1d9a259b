"""Worked solutions as tasks: fill in the steps that are masked, or put shuffled steps in order.

Made of any tasks whose solution is known in steps: what was masked or moved is known by construction, so that each step
pays by itself and no final answer has to be verified. Steps are those that a hint may give: all but the last.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from lyceum.core.component import of_kind, slot
from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Hint, Split, Task, TaskSource
from lyceum.reward.base import each
from lyceum.reward.extract import Extract
from lyceum.tasks.base import Source, check_index
from lyceum.tasks.prompt import fields_of, fill
from lyceum.utils.errors import RecipeError
from lyceum.utils.terminal import quoted

LEAST_STEPS = 2
"""Steps of a solution that can be put in order."""


class MaskedAndReordered(TasksSettings):
    """Tasks made of other tasks' solutions: masked steps to fill in, or shuffled steps to put in order.

    The reward of the first is the share of masked steps that are right, that of the second the share of places with the
    right step. ``columns["demonstration"]`` has the answer, for fine-tuning.
    """

    kind: Literal["masked-and-reordered"] = "masked-and-reordered"
    tasks: Annotated[TasksSettings, slot("tasks")] = of_kind("chain")
    """The tasks; each has a solution of at least two steps before its last."""
    reorder_share: float = Field(0.5, ge=0, le=1)
    """Share of tasks that ask for the order; the others ask for masked steps (no unit)."""
    mask_share: float = Field(0.5, gt=0, le=1)
    """Share of a solution's steps that are masked, at least one step (no unit)."""
    mask: str = Field("_", min_length=1, max_length=100)
    """What stands in the place of a masked step."""
    masked: str = (
        "{steps}\nThis is a solution in which some steps are masked. Give them in order, with commas between, after #."
    )
    """What stands below the problem of a masked task, in the place of a hint, with {steps}."""
    reordered: str = (
        "{steps}\nThese are the steps of a solution in a wrong order. Give the places, from 1 on, at which they stand "
        "here, in the right order and with commas between, after #."
    )
    """What stands below the problem of a reordered task."""
    answer: Extract = Extract.model_validate({"after": "#"})
    """Where to find the steps or places in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""

    separator: str = Field(",", min_length=1, max_length=100)
    """What separates steps, or places, in an answer."""
    demonstration: str = "#{answer}"
    """A completion to imitate, with {answer} and, where it shows one, the task's own demonstration as {solution}."""

    @field_validator("masked", "reordered")
    @classmethod
    def _shows_steps(cls, template: str) -> str:
        if set(fields_of(template)) != {"steps"}:
            raise ValueError(f"got {template!r}; allowed: a text with {{steps}}")
        return template

    @field_validator("demonstration")
    @classmethod
    def _shows_the_answer(cls, template: str) -> str:
        if set(fields_of(template)) not in ({"answer"}, {"answer", "solution"}):
            raise ValueError(f"got {template!r}; allowed: a text with {{answer}}, and perhaps {{solution}}")
        return template

    def check_paths(self) -> None:
        self.tasks.check_paths()

    def paths(self) -> frozenset[str]:
        return self.tasks.paths()

    def build(self, split: Split, seed: int) -> MaskedAndReorderedSource:
        return MaskedAndReorderedSource(self, self.tasks.build(split, seed))


class MaskedAndReorderedSource(Source):
    """``source[i]`` is made of the i-th of the tasks; what is masked or moved is drawn by its id alone."""

    def __init__(self, settings: MaskedAndReordered, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Task:
        check_index("masked-and-reordered", index, len(self))
        settings, task = self.settings, self.source[index]
        solution = self.source.solution(task)
        if solution is None or len(solution.steps) < LEAST_STEPS:
            found = 0 if solution is None else len(solution.steps)
            raise RecipeError(
                f"tasks.tasks: task {quoted(task.id)} has {found} steps before its last; allowed: tasks whose solution "
                f"has at least {LEAST_STEPS}, such as {{kind: chain, levels: [3, 4]}}"
            )
        steps, rng = solution.steps, random.Random(f"masked-and-reordered/{task.id}")
        reorders = rng.random() < settings.reorder_share
        if reorders:
            order = shuffled(rng, len(steps))
            shown, template = [steps[place] for place in order], settings.reordered
            answer = [str(order.index(place) + 1) for place in range(len(steps))]
        else:
            hidden = set(rng.sample(range(len(steps)), max(1, round(settings.mask_share * len(steps)))))
            shown = [settings.mask if place in hidden else step for place, step in enumerate(steps)]
            template = settings.masked
            answer = [steps[place] for place in sorted(hidden)]
        text = fill(template, {"steps": solution.before + solution.between.join(shown)})
        text_of_answer = settings.separator.join(answer)
        kind = "reordered" if reorders else "masked"
        said = {"answer": text_of_answer, "solution": self.source.imitated(task) or ""}
        columns: dict[str, Any] = {
            "level": len(steps),
            "expected": answer,
            "shown": shown,
            "demonstration": fill(settings.demonstration, said),
        }
        messages = self.source.hinted(task, Hint(kind, text)).messages
        return Task(f"{task.id}/{kind}", messages, text_of_answer, columns, provenance=kind)

    def grader(self) -> Grader:
        return each(lambda task, leaf: grade(task, leaf, self.settings))


def shuffled(rng: random.Random, n: int) -> list[int]:
    """An order of 0 .. n-1 in which not all stand at their place."""
    order = list(range(n))
    while order == sorted(order):
        rng.shuffle(order)
    return order


def grade(task: Task, leaf: Node, settings: MaskedAndReordered) -> Grade:
    """The share of masked steps, or of places, that are right; an answer with another number of them earns 0."""
    found = settings.answer(leaf.completion)
    given = [] if found is None else [part.strip() for part in found.split(settings.separator)]
    share = matches(task, given) / len(task.columns["expected"])
    answered = settings.answer.answered(leaf.completion)
    return Grade(share, share == 1, parts={task.provenance: share}, answered=answered)


def matches(task: Task, given: Sequence[str]) -> int:
    """How many of the steps or places are right. Places name steps: of two equal steps either may stand first."""
    expected, shown = task.columns["expected"], task.columns["shown"]
    if len(given) != len(expected):
        return 0
    if task.provenance == "masked":
        return sum(said == right for said, right in zip(given, expected, strict=True))
    if sorted(given) != sorted(expected):  # each place once
        return 0
    return sum(shown[int(a) - 1] == shown[int(b) - 1] for a, b in zip(given, expected, strict=True))
