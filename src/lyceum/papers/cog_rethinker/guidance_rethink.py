"""Cog-Rethinker: where a whole group fails, split the problem; where that fails too, correct the attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from pydantic import Field, field_validator

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, graft, is_correct
from lyceum.core.types import Context, Guidance, Hint, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, apart, failed, first_tasks, graded, notes_of, start_under, start_with
from lyceum.tasks.prompt import fields_of, fill
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError, nearest

Way = Literal["decompose", "refine"]


@dataclass
class RethinkNote(Note):
    """What was tried for a task whose whole group failed.

    Attributes:
        failed: whether all direct rollouts were incorrect.
        sampled, right: number of graded and of correct samples of each way that was tried.
        rescued_by: the way by which a sample was correct; None where none was.
        too_long: number of prompts that exceed the model's context.
    """

    kind: ClassVar[str] = "rethink"
    failed: bool
    sampled: dict[Way, int] = field(default_factory=dict)
    right: dict[Way, int] = field(default_factory=dict)
    rescued_by: Way | None = None
    too_long: int = 0


class Rethink(GuidanceSettings):
    """Where a whole group fails, sample it again under a prompt that splits the problem, then under prompts that show
    its wrong attempts; the first group with a correct sample replaces the failed one.

    The group is trained under the prompts it was written under, and its correct samples once more below the task's own
    prompt, apart from any group: ``objective: ppo-and-sft`` imitates those.
    """

    kind: Literal["rethink"] = "rethink"
    ways: tuple[Way, ...] = Field(("decompose", "refine"), min_length=1)
    """What is tried, in this order."""
    decompose: str = Field(
        "Split this into smaller problems, solve one after the other, and then give the answer.", min_length=1
    )
    """What the hint in the prompt says; {column} is the text of a task's column."""
    refine: str = Field("This is not correct. Find the mistake, and give a correct solution.", min_length=1)
    """The user's message after a wrong attempt of the policy."""
    attempts: int = Field(8, ge=1)
    """Wrong attempts that are shown, each in a prompt of its own; the group's samples are spread over them."""

    @field_validator("ways")
    @classmethod
    def _ways_differ(cls, ways: tuple[Way, ...]) -> tuple[Way, ...]:
        if len(set(ways)) < len(ways):
            raise ValueError(f"got {', '.join(ways)}; allowed: each of {', '.join(get_args(Way))} once")
        return ways

    @field_validator("decompose")
    @classmethod
    def _names_are_columns(cls, decompose: str) -> str:
        fields_of(decompose)
        return decompose

    def check_tasks(self, source: TaskSource) -> None:
        if "decompose" not in self.ways:
            return
        tasks = first_tasks(source)
        for name in fields_of(self.decompose):
            if all(task.columns.get(name) is None for task in tasks):
                there = dict.fromkeys(column for task in tasks for column in task.columns)
                raise RecipeError(
                    f"guidance.rethink.decompose: got {{{name}}}{nearest(name, there)}, but no task has a column of "
                    f"this name; allowed: {', '.join(there) or 'no column'}"
                )

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return Rethinker(self, source)


class Rethinker(TaskGuide):
    """Has no state.

    Source: Cog-Rethinker, arXiv:2510.15979, as its abstract and its public reviews tell.
    """

    def __init__(self, settings: Rethink, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        own = await rollout(context, start, n)
        await context.grade(own)
        note = RethinkNote(failed(own))
        context.tree.add_note(note)
        if not note.failed:
            return own
        for way in self.settings.ways:
            helped = await self.again(rollout, context, self.starts(way, context, start, own, note), n or len(own))
            right = [leaf for leaf in helped if is_correct(leaf)]
            if helped:
                note.sampled[way], note.right[way] = len(graded(helped)), len(right)
            if right:
                note.rescued_by = way
                to_imitate = apart(context.tree, start, self.settings.kind)
                return [*helped, *(graft(leaf, to_imitate) for leaf in right)]
        return own

    def starts(self, way: Way, context: Context, start: Node, own: Sequence[Node], note: RethinkNote) -> list[Node]:
        """Where the group is sampled again: under the prompts of a way that the model's context has room for."""
        if way == "decompose":
            hint = self.decomposition(context.task)
            found = [] if hint is None else [start_with(hint, context, self.source, start)]
        else:
            attempts: dict[str, Node] = {}
            for leaf in graded(own):
                attempts.setdefault(leaf.completion, leaf)
            shown = list(attempts.values())[: self.settings.attempts]
            found = [start_under(self.corrected(leaf, context), context, start) for leaf in shown]
        note.too_long += found.count(None)
        return [node for node in found if node is not None]

    def decomposition(self, task: Task) -> Hint | None:
        """The hint that asks to split the problem; None where the task lacks a column that it names."""
        columns = {name: task.columns.get(name) for name in fields_of(self.settings.decompose)}
        if any(value is None for value in columns.values()):
            return None
        return Hint("decompose", fill(self.settings.decompose, columns))

    def corrected(self, attempt: Node, context: Context) -> list[int]:
        """A prompt: the conversation so far, with the wrong attempt, and what the user says of it."""
        keep, tokens = context.follow(attempt, [{"role": "user", "content": self.settings.refine}])
        return [*attempt.path_tokens()[:keep], *tokens]

    async def again(self, rollout: Rollout, context: Context, starts: Sequence[Node], n: int) -> list[Node]:
        """``n`` graded samples spread over the starts; none where there is no start, or no token left."""
        if not starts or context.budget_left <= 0:
            return []
        sizes = [n // len(starts) + (place < n % len(starts)) for place in range(len(starts))]
        tries = [(start, size) for start, size in zip(starts, sizes, strict=True) if size]
        left = context.budget_left // len(tries)
        drawn = await gather(rollout(context.share(left), start, size) for start, size in tries)
        leaves = [leaf for group in drawn for leaf in group]
        await context.grade(leaves)
        return leaves

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, RethinkNote)]
        metrics: dict[str, float] = {
            "groups/failed": sum(note.failed for note in notes),
            "groups/guided": sum(bool(note.sampled) for note in notes),
            "too_long/prompts": sum(note.too_long for note in notes),
        }
        for way in self.settings.ways:
            metrics[f"samples/{way}"] = sum(note.sampled.get(way, 0) for note in notes)
            metrics[f"right/{way}"] = sum(note.right.get(way, 0) for note in notes)
            metrics[f"rescued_by/{way}"] = sum(note.rescued_by == way for note in notes)
        self._metrics = metrics
