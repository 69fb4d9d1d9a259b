"""AMPO: where a whole group fails, the teachers' solutions that the policy understands best replace failures."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator

from lyceum.core.needs import Need
from lyceum.core.notes import Note
from lyceum.core.settings import Composition, GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Guidance, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, answer_of, failed, first_tasks, graded, notes_of
from lyceum.guidance.demonstrations import LEFT_OUT, checked
from lyceum.reward.extract import Extract
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import mean
from lyceum.utils.terminal import quoted

TEACHER = re.compile(r"[\w.-]{1,64}")
MOST_TEACHERS = 32
"""Maximum different teachers of all tasks."""


class Demonstration(NamedTuple):
    """A teacher's solution."""

    teacher: str
    text: str


@dataclass
class MultiGuidanceNote(Note):
    """The teachers' solutions of a task.

    Attributes:
        failed: whether all rollouts were incorrect; only then is anything else filled in.
        ranked: (teacher, the policy's mean probability of the answer after this reasoning) of each usable solution, in
            the order of choice; None where they are not ranked.
        chosen: how many of these are trained.
        left_out: reason -> number of solutions that cannot be used.
    """

    kind: ClassVar[str] = "multi-guidance"
    failed: bool
    ranked: list[tuple[str, float | None]] = field(default_factory=list)
    chosen: int = 0
    left_out: dict[str, int] = field(default_factory=dict)


class MultiGuidance(GuidanceSettings):
    """Solutions of several teachers (``columns["demonstrations"]``, a list of {teacher, text}) replace failures, only
    where every rollout of the task fails.

    An objective that trains a teacher's tokens (``luffy``, ``rl-plus``) learns from them.
    """

    requires: ClassVar = (Need("score", when=lambda own: own.choose == "comprehension"),)

    kind: Literal["multi-guidance"] = "multi-guidance"
    replaced: int = Field(2, ge=1)
    """Most failures of a group that are replaced, each by another teacher's solution."""
    choose: Literal["comprehension", "random"] = "comprehension"
    """``comprehension`` takes the solutions after whose reasoning the policy finds the reference answer most likely
    (the mean probability of its tokens); ``random`` takes any."""
    answer: Extract = Extract.model_validate("boxed")
    """Where a solution gives its answer: boxed, {after: MARK}, {tags: NAME}. The text before it is the reasoning."""
    max_completion_tokens: int = Field(2048, ge=1)
    """Maximum tokens of a solution; longer ones, and those that exceed the model's context, are left out."""

    @field_validator("answer")
    @classmethod
    def _answer_has_a_place(cls, answer: Extract) -> Extract:
        if answer.form in ("whole", "json"):
            raise ValueError(
                f"got {answer.form!r}, where no reasoning stands before the answer; allowed: boxed, fenced, "
                '{after: "####"}, {tags: answer}'
            )
        return answer

    def check(self, stage: Composition) -> list[str]:
        lines: list[str] = []
        if stage.trajectories is not None and self.replaced >= stage.trajectories:
            key = stage.trajectories_key
            lines.append(
                f"guidance.multi-guidance.replaced: got {self.replaced} with {key} {stage.trajectories}, which leaves "
                f"nothing to compare the teachers' with; allowed: fewer than {key}"
            )
        return lines

    def check_tasks(self, source: TaskSource) -> None:
        tasks = first_tasks(source)
        teachers = {one.teacher for task in tasks for one in demonstrations_of(task)}
        if len(teachers) > MOST_TEACHERS:
            raise RecipeError(
                f"guidance.multi-guidance: the tasks' column 'demonstrations' names {len(teachers)} teachers; allowed: "
                f"at most {MOST_TEACHERS}"
            )
        if not teachers:
            raise RecipeError(
                "guidance.multi-guidance: none of the tasks has a column 'demonstrations'; allowed: a list of "
                "{teacher, text} per task"
            )
        if self.choose == "comprehension" and all(answer_of(task) is None for task in tasks):
            raise RecipeError(
                "guidance.multi-guidance.choose: got 'comprehension', but none of the tasks has a reference answer; "
                "allowed: 'random', or tasks with answers (tasks.columns.answer of a dataset)"
            )

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return MultiGuide(self)


class MultiGuide(TaskGuide):
    """Has no state.

    Source: AMPO, arXiv:2510.02227, and its released code (adaptive_mix_src/mix_dapo_trainer.py; reward_manager/prob.py,
    ``mean_exp_log_softmax``).
    """

    def __init__(self, settings: MultiGuidance) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        own = await rollout(context, start, n)
        await context.grade(own)
        note = MultiGuidanceNote(failed(own))
        context.tree.add_note(note)
        if not note.failed:
            return own
        taught = await self.chosen(await self.usable(context, start, note), context, start, note)
        # All have failed: which of them are replaced makes no difference.
        places = {id(leaf) for leaf in graded(own)[: len(taught)]}
        return [*(leaf for leaf in own if id(leaf) not in places), *taught]

    async def usable(self, context: Context, start: Node, note: MultiGuidanceNote) -> list[tuple[Demonstration, Node]]:
        """The solutions that fit and that the tasks' own verifier grades correct, as trajectories."""
        found: list[tuple[Demonstration, Node]] = []
        for one in demonstrations_of(context.task):
            leaf = await checked(one.text, context, start, self.settings.max_completion_tokens)
            if isinstance(leaf, str):
                note.left_out[leaf] = note.left_out.get(leaf, 0) + 1
            else:
                found.append((one, leaf))
        return found

    async def chosen(
        self, usable: Sequence[tuple[Demonstration, Node]], context: Context, start: Node, note: MultiGuidanceNote
    ) -> list[Node]:
        ranked: list[tuple[float | None, Demonstration, Node]]
        if self.settings.choose == "random":
            rng = random.Random(context.seed(self.settings.kind, start.address))
            ranked = [(None, *each) for each in rng.sample(usable, len(usable))]
        else:
            scores = await gather(self.comprehension(one.text, context, start) for one, _ in usable)
            scored = zip(scores, usable, strict=True)
            ranked = [(score, *each) for score, each in sorted(scored, key=lambda pair: -pair[0])]
        note.ranked = [(one.teacher, score) for score, one, _ in ranked]
        note.chosen = min(len(ranked), self.settings.replaced)
        for _, _, leaf in ranked[note.chosen :]:
            leaf.detach()
        return [leaf for _, _, leaf in ranked[: note.chosen]]

    async def comprehension(self, text: str, context: Context, start: Node) -> float:
        """The policy's mean probability of the reference answer's tokens after a solution's reasoning.

            c = 1/|a| sum_t pi(a_t | q, reasoning, a_<t)        a: the reference answer; between 0 and 1

        0 where the solution gives its answer in another place than ``answer``, or the context has no room.
        """
        reasoning, answer = self.settings.answer.until_answer(text), answer_of(context.task)
        if reasoning is None or answer is None:
            return 0.0
        path = start.path_tokens()
        path = [*path, *context.encode_after(path, reasoning)]
        tokens = context.encode_after(path, answer)
        if not tokens or len(path) + len(tokens) - len(start.path_tokens()) > context.tokens_left(start):
            return 0.0
        scored = await context.score([*path, *tokens])
        return mean([math.exp(logprob) for logprob in scored[-len(tokens) :]])

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, MultiGuidanceNote)]
        chosen = [each for note in notes for each in note.ranked[: note.chosen]]
        others = [each for note in notes for each in note.ranked[note.chosen :]]
        metrics: dict[str, float] = {
            "groups/failed": sum(note.failed for note in notes),
            "groups/guided": sum(bool(note.chosen) for note in notes),
        }
        by_teacher = Counter(teacher for teacher, _ in chosen)
        metrics |= {f"chosen/{teacher}": times for teacher, times in sorted(by_teacher.items())}
        left_out = sum((Counter(note.left_out) for note in notes), Counter[str]())
        metrics |= {f"left_out/{why.replace(' ', '_')}": left_out[why] for why in LEFT_OUT if why != "missing"}
        for name, solutions in (("chosen", chosen), ("others", others)):
            if known := [score for _, score in solutions if score is not None]:
                metrics[f"comprehension/{name}"] = mean(known)
        self._metrics = metrics


def demonstrations_of(task: Task) -> list[Demonstration]:
    """The solutions in a task's column ``demonstrations``; empty where it has none.

    Raises:
        RecipeError: the column holds anything else.
    """
    given = task.columns.get("demonstrations")
    if given is None:
        return []
    for one in given if isinstance(given, list | tuple) else [None]:
        if not isinstance(one, dict) or not all(isinstance(one.get(name), str) for name in Demonstration._fields):
            raise RecipeError(
                f"tasks: task {task.id!r} has {quoted(given if one is None else one)} in its column 'demonstrations'; "
                "allowed: a list of {teacher, text}, both texts"
            )
        if not TEACHER.fullmatch(one["teacher"]):
            raise RecipeError(
                f"tasks: task {task.id!r} has a demonstration of teacher {quoted(one['teacher'])}; allowed: a name of "
                "letters, digits and _ . - of at most 64 characters, since metrics are named after it"
            )
    return [Demonstration(one["teacher"], one["text"]) for one in given]
