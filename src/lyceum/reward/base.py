"""Parts of a reward, and how they become one.

A part is a grader (``async (task, leaves, context) -> list[Grade]``) with a weight. Parts are summed, or multiply or
gate the sum (``RewardSettings.combine``); where one of them abstains, the trajectory is ungraded, and the reason names
the part. Most graders are functions; one that changes from
step to step is an object (``BaseGrader``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel

from lyceum.core.component import Component, require_keys
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import (
    Grade,
    Grader,
    GradingContext,
    JudgedStep,
    ShapingGrader,
    State,
    Task,
    TaskSource,
    is_scalar,
)
from lyceum.core.user_files import describe
from lyceum.reward.function_registry import is_passed_in, shown
from lyceum.utils.errors import LostOutside, RecipeError
from lyceum.utils.numbers import LARGEST_REWARD, real
from lyceum.utils.terminal import quoted

_code_allowed: ContextVar[bool] = ContextVar("lyceum_code_allowed", default=False)


class BaseGrader:
    """A grader that observes the steps of its stage and keeps state: called like any ``Grader`` or ``ShapingGrader``.

    Each stage builds its own, whose state is in the checkpoint. Evaluations have one that observes nothing: a verdict
    must not depend on state. What is here passes everything on to the graders within.
    """

    def within(self) -> Mapping[str, Callable[..., Any]]:
        """The graders that it asks, functions and objects, by name."""
        return {}

    def _objects(self) -> dict[str, BaseGrader]:
        return {name: grader for name, grader in self.within().items() if isinstance(grader, BaseGrader)}

    def observe(self, trees: Sequence[Tree]) -> None:
        """A step's finished trees, those that were dropped too, after the weights were updated: the only place where
        state changes."""
        for grader in self._objects().values():
            grader.observe(trees)

    def metrics(self) -> dict[str, float]:
        """What it did in the step just observed, as ``what/of`` -> number; logged as ``reward/KIND/what/of``."""
        of_each = {name: grader.metrics() for name, grader in self._objects().items()}
        return {f"{name}/{key}": number for name, metrics in of_each.items() for key, number in metrics.items()}

    def state_dict(self) -> State:
        return {name: grader.state_dict() for name, grader in self._objects().items()}

    def load_state_dict(self, state: State) -> None:
        graders = self._objects()
        require_keys("reward", given=state, needed=graders)
        for name, grader in graders.items():
            grader.load_state_dict(state[name])


def combine(parts: Sequence[RewardSettings], source: TaskSource) -> Combined:
    """The grader that runs every part concurrently and combines them, as ``RewardSettings`` says.

    A trajectory is correct where every part that judges correctness says so. A part that abstains, raises or
    gives no finite number leaves the trajectory ungraded: a sum that lacks a term is another reward. One of weight 0
    is not a term: it is then missing from the metadata, with the reason. Parts that shape (``after_verdict``) run
    after the others.

    Raises:
        RecipeError: there is no part, or none that adds, or only parts that shape.
    """
    if not parts:
        raise RecipeError("reward: got no part; allowed: one or more, for example kind 'task'")
    if all(part.combine != "add" for part in parts):
        raise RecipeError(
            "reward: got only parts that multiply or gate; allowed: beside one with combine 'add', for example kind "
            "'task'"
        )
    names = part_names(parts)
    judging = {name: part.build(source) for name, part in zip(names, parts, strict=True) if not part.after_verdict}
    shaping = {name: part.build(source) for name, part in zip(names, parts, strict=True) if part.after_verdict}
    if not judging:
        raise RecipeError(
            f"reward: got {', '.join(shaping)}, which is told what another part has judged; allowed: together with "
            "one that judges, for example kind 'task'"
        )

    return Combined(judging, shaping, dict(zip(names, parts, strict=True)))


@dataclass(frozen=True)
class Combined(BaseGrader):
    """A grader of parts.

    Attributes:
        judging: graders that are asked first, by name.
        shaping: graders that are told the verdicts of these.
        parts: the settings of all of them, in the order in which they are logged.
    """

    judging: Mapping[str, Callable[..., Any]]
    shaping: Mapping[str, Callable[..., Any]]
    parts: Mapping[str, RewardSettings]

    @property
    def asks_model(self) -> bool:
        """Whether one of them asks the run's model."""
        return any(part.waits_for_model for part in self.parts.values())

    def within(self) -> Mapping[str, Callable[..., Any]]:
        return {**self.judging, **self.shaping}

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        async def ask(graders: Mapping[str, Any], *further: Any) -> dict[str, list[Grade]]:
            found = await asyncio.gather(
                *(ask_part(graders[name], task, leaves, context, *further) for name in graders)
            )
            return dict(zip(graders, found, strict=True))

        columns = await ask(self.judging)
        if self.shaping:
            columns |= await ask(self.shaping, [verdict_of(row) for row in zip(*columns.values(), strict=True)])
        terms = {name: RewardTerm.of(part, context) for name, part in self.parts.items()}
        rows = list(zip(*(terms[name].prepared(columns[name]) for name in self.parts), strict=True))
        # Alike samples have the same grades, as objects: they are added up once.
        sums = {
            tuple(map(id, row)): add_up(dict(zip(self.parts, row, strict=True)), list(terms.values()))
            for row in {tuple(map(id, row)): row for row in rows}.values()
        }
        return [sums[tuple(map(id, row))] for row in rows]


@dataclass(frozen=True)
class RewardTerm:
    """How a part joins the others, in one step: the settings of ``RewardSettings`` of the same names.

    Attributes:
        may_judge: whether its plain numbers may be verdicts.
        scheduled: whether the weight follows a schedule, and is logged with each grade.
    """

    weight: float
    combine: Literal["add", "multiply", "gate"] = "add"
    passes_at: float = 1.0
    standardise: bool = False
    scheduled: bool = False
    may_judge: bool = False

    @classmethod
    def of(cls, part: RewardSettings, context: GradingContext) -> RewardTerm:
        weight = part.weight if part.schedule is None else part.weight * part.schedule.at(context.progress)
        scheduled = part.schedule is not None
        return cls(weight, part.combine, part.passes_at, part.standardise, scheduled, part.may_judge)

    def prepared(self, grades: Sequence[Grade]) -> list[Grade]:
        """A task's grades of this part as they join the others."""
        found = standardised(grades) if self.standardise else list(grades)
        if self.combine == "gate":
            found = [replace(each, parts={**each.parts, "failed": float(self.fails(each))}) for each in found]
        return (
            [replace(each, parts={**each.parts, "weight": self.weight}) for each in found] if self.scheduled else found
        )

    def fails(self, grade: Grade) -> bool:
        """Whether this is a gate that decides the outcome."""
        decides = self.combine == "gate" and bool(self.weight)
        return decides and grade.outcome is not None and grade.outcome < self.passes_at


def verdict_of(grades: Sequence[Grade]) -> bool | None:
    """Correct where every part that judges correctness says so; None where no part does.

    An outcome of 1 or 0 is not read as a verdict: a format part gives those too.
    """
    verdicts = [grade.correct for grade in grades if grade.correct is not None]
    return all(verdicts) if verdicts else None


def to_judge(parts: Sequence[RewardSettings]) -> str | None:
    """The key that says which rewards are correct answers, where functions give numbers; None without functions."""
    named = {n: ", ".join(spec.rpartition(":")[2] for spec in part.code()) for n, part in enumerate(parts)}
    functions = [f"{n} ({names})" for n, names in named.items() if names and parts[n].may_judge]
    if not functions:
        return None
    if len(parts) == 1:
        return "reward.correct_at=VALUE says from which reward on an answer is correct"
    return f"reward.N.correct_at=1 says which part judges, N being {' or '.join(functions)}"


def part_names(parts: Sequence[RewardSettings]) -> list[str]:
    """The label of each part, its kind or its function; the second part of a label is ``label#2``."""
    return numbered([part.label for part in parts])


def numbered(names: Sequence[str]) -> list[str]:
    """The names, the second one of a name as ``name#2``."""
    counts = [names[: at + 1].count(name) for at, name in enumerate(names)]
    return [name if count == 1 else f"{name}#{count}" for name, count in zip(names, counts, strict=True)]


def add_up(grades: Mapping[str, Grade], terms: Sequence[RewardTerm | float]) -> Grade:
    """One grade from the named grades of a trajectory's parts.

        (sum_{p adds} weight_p part_p) prod_{p multiplies} (1 + weight_p (part_p - passes_at_p))

    or, where a gate fails, weight times the first that does. Judged steps are those of the parts that add, weighted and
    multiplied alike; of a gate that fails its own alone.

    Args:
        terms: of each part, in the order of ``grades``; a number is the weight of one that adds.
    """
    joined = [term if isinstance(term, RewardTerm) else RewardTerm(term) for term in terms]
    by_name = dict(zip(grades, joined, strict=True))
    silent = {name: grade.reason or "no outcome" for name, grade in grades.items() if grade.outcome is None}
    reason = "; ".join(f"{name}: {why}" for name, why in silent.items()) or None
    failed = next((name for name, term in by_name.items() if term.fails(grades[name])), None)
    details = next((grade.details for grade in grades.values() if grade.details is not None), None)
    if failed is None and any(by_name[name].weight for name in silent):
        return Grade.ungraded(reason or "", details)
    outcome, factor = 0.0, 1.0
    named: dict[str, float] = {}
    steps: dict[tuple[int, int], float] = {}
    for name, grade in grades.items():
        if grade.outcome is None:
            continue
        named[name] = grade.outcome
        named.update({f"{name}/{inner}": value for inner, value in grade.parts.items()})
        term = by_name[name]
        if term.combine == "multiply":
            factor *= 1.0 + term.weight * (grade.outcome - term.passes_at)
        if name == failed if failed is not None else term.combine == "add":
            outcome += term.weight * grade.outcome
            for start, stop, reward in grade.steps:
                steps[start, stop] = steps.get((start, stop), 0.0) + term.weight * reward
    if failed is None and any(term.combine == "multiply" for term in joined):
        outcome, steps = outcome * factor, {span: reward * factor for span, reward in steps.items()}
    if not all(abs(value) <= LARGEST_REWARD for value in (outcome, *steps.values())):
        return Grade.ungraded(f"the weighted sum of the parts is not a finite number of at most {LARGEST_REWARD:g}")
    right = verdict_of(list(grades.values()))
    plain = {
        name: grade.parts["raw"] if term.standardise else grade.outcome
        for (name, grade), term in zip(grades.items(), joined, strict=True)
        if grade.outcome is not None and (term.may_judge or len(joined) == 1)
    }
    said = [grade.answered for grade in grades.values() if grade.answered is not None]
    answered = any(said) if said else None
    judged = tuple(JudgedStep(*span, reward) for span, reward in sorted(steps.items()))
    return Grade(outcome, right, judged, named, reason, details, answered, plain if right is None else None)


def standardised(grades: Sequence[Grade]) -> list[Grade]:
    """Scores minus their mean, over their standard deviation (which divides by n); the raw ones stay in ``parts``.

    0 where all are equal. Grades without a score stay as they are.
    """
    scores = [grade.outcome for grade in grades if grade.outcome is not None]
    if not scores:
        return list(grades)
    middle = sum(scores) / len(scores)
    deviation = math.sqrt(sum((score - middle) ** 2 for score in scores) / len(scores))
    # Below a millionth of the scores' size is rounding: nothing differs.
    flat = deviation <= 1e-6 * max(map(abs, scores))
    return [
        grade
        if grade.outcome is None
        else replace(
            grade,
            outcome=0.0 if flat else (grade.outcome - middle) / deviation,
            parts={**grade.parts, "raw": grade.outcome},
        )
        for grade in grades
    ]


async def ask_part(
    grader: Callable[..., Any], task: Task, leaves: Sequence[Any], context: GradingContext, *further: Any
) -> list[Grade]:
    """The grades of a part (or of a scorer), or ungraded with its failure as the reason."""
    try:
        grades: list[Grade] = await grader(task, leaves, context, *further)
    except Exception as error:
        return [ungraded_by(error)] * len(leaves)
    if len(grades) != len(leaves):
        return [Grade.ungraded(f"{len(grades)} grades for {len(leaves)} trajectories")] * len(leaves)
    return [_checked(grade) for grade in grades]


def ungraded_by(error: Exception) -> Grade:
    """Ungraded, with an error as the reason.

    Raises:
        LostOutside: the error is that what grades is gone, which says nothing of a completion: the run ends with it.
    """
    if isinstance(error, LostOutside):
        raise error
    return Grade.ungraded(describe(error))


def _checked(grade: Grade) -> Grade:
    """The grade with its outcome as a float, or ungraded where that is not finite, or too large for a reward."""
    if grade.outcome is None:
        return grade
    try:
        outcome = real(grade.outcome, "the outcome")
    except (TypeError, ValueError) as error:
        return Grade.ungraded(describe(error))
    if not math.isfinite(outcome):
        return Grade.ungraded(f"the outcome is {outcome}; allowed: a finite number, or None to abstain")
    return grade if outcome is grade.outcome else replace(grade, outcome=outcome)


def each(score: Callable[[Task, Node], Grade]) -> Grader:
    """A grader from a fast function of one trajectory, run in the caller's loop; an exception affects one grade."""

    async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        grades: list[Grade] = []
        for leaf in leaves:
            try:
                grades.append(score(task, leaf))
            except Exception as error:
                grades.append(ungraded_by(error))
        return grades

    return grade


def each_at_once(score: Callable[[Task, Node], Awaitable[Grade]]) -> Grader:
    """The same from a coroutine of one trajectory: those of a task wait together."""

    async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        return list(await asyncio.gather(*(score(task, leaf) for leaf in leaves)))

    return grade


def each_with_verdict(score: Callable[[Task, Node, bool | None], Grade]) -> ShapingGrader:
    """The same for a part that is told what another part says of each trajectory; None: nothing."""

    async def grade(
        task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        return [score(task, leaf, verdict) for leaf, verdict in zip(leaves, verdicts, strict=True)]

    return grade


def right_answers(task: Task) -> list[Any]:
    """The answers that count as correct: the task's own, or each of a list of them. Empty where it has none, or one
    that cannot be compared with."""
    answers = list(task.answer) if isinstance(task.answer, list | tuple) else [task.answer]
    return answers if all(map(is_scalar, answers)) else []


def no_right_answer(task: Task) -> Grade:
    """The grade where ``right_answers`` finds none."""
    if task.answer is None or task.answer == []:
        return Grade.ungraded(f"task {task.id!r} has no answer to compare with")
    return Grade.ungraded(f"the answer {quoted(task.answer)} of task {task.id!r} is no text or number to compare with")


def verdict(right: bool, *, answered: bool | None = None) -> Grade:
    """1 for a correct answer, 0 for an incorrect one."""
    return Grade(float(right), right, answered=answered)


def code_allowed() -> bool:
    """Whether a recipe may name Python code to run. False unless ``allow_code`` says otherwise.

    A recipe is untrusted data; a reward function or a tool that it names is code. The caller that builds it
    decides: the command line allows it where the user typed the path or ``trust_code=true``.
    """
    return _code_allowed.get()


def named_code(settings: Any) -> list[str]:
    """Every Python function named anywhere inside settings, such as a dataset's verifier: what needs permission."""
    if isinstance(settings, Component) and settings.code():
        return list(settings.code())
    if isinstance(settings, BaseModel):
        inner: Sequence[Any] = [getattr(settings, name) for name in type(settings).model_fields]
    elif isinstance(settings, Mapping):
        inner = list(settings.values())
    else:
        inner = settings if isinstance(settings, list | tuple) else ()
    return [spec for value in inner for spec in named_code(value)]


def passed_in_here(got: str, otherwise: str, *settings: Any) -> list[str]:
    """Lines for the functions inside settings that were passed in, which other processes than this one do not have.

    Args:
        got: the key that asks for other processes, and its value.
        otherwise: what is allowed instead of a function in a file.
    """
    return [
        f"{got} with {shown(spec)!r}, a function that was passed in, which other processes do not have; allowed: one "
        f"in a file (FILE.py:NAME), or {otherwise}"
        for each in settings
        for spec in named_code(each)
        if is_passed_in(spec)
    ]


@contextmanager
def allow_code(allowed: bool = True) -> Iterator[None]:
    """Allow rewards and environments built inside this context to run the Python functions that they name."""
    token = _code_allowed.set(allowed)
    try:
        yield
    finally:
        _code_allowed.reset(token)
