"""The group's accuracy says how hard a task is: the policy makes hard tasks easier and medium ones different (CLPO).

Source: CLPO, arXiv:2509.25004: thresholds, two ways to rewrite, and the rewriter's credit by the gain in accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, solved
from lyceum.core.types import Context, Grade, ProposedSource, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, answers_to, asked_of, notes_of, own_prompt, writable
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean

Way = Literal["simplify", "diversify"]


class Restructure(GuidanceSettings):
    """A group whose accuracy is at most ``hard`` has its task rewritten into easier ones, one at most ``medium`` into
    other ones like it; those above are left. A rule reads what is written and computes its answer, and the policy
    answers it in the same step. Writing is trained too: a rewriting earns how much more often it is answered correctly
    than its task was, ``rejected`` where it is no task.
    """

    kind: Literal["restructure"] = "restructure"
    hard: float = Field(default=0.25, ge=0, le=1)
    """Accuracy of a group up to which its task is hard."""
    medium: float = Field(default=0.75, ge=0, le=1)
    """Accuracy up to which it is medium."""
    rewritings: int = Field(default=2, ge=1, le=64)
    """Rewritings of a task, which are compared with each other; each is answered as often as the rollout samples."""
    simplify: str = Field(
        default="{problem}\n\nDo not solve this problem. Write an easier one like it.", pattern=r"\{problem\}"
    )
    """What the user says where the task is hard; ``{problem}`` is its last message."""
    diversify: str = Field(
        default="{problem}\n\nDo not solve this problem. Write another one that is as hard.", pattern=r"\{problem\}"
    )
    """What the user says where it is medium."""
    rejected: float = Field(default=-1.0, ge=-100, le=100)
    """What a rewriting earns that is no task."""

    @model_validator(mode="after")
    def _hard_is_below_medium(self) -> Restructure:
        if self.hard > self.medium:
            raise ValueError(f"hard: got {self.hard:g} with medium {self.medium:g}; allowed: at most that")
        return self

    def check_tasks(self, source: TaskSource) -> None:
        writable(self.kind, source)

    def build(self, source: TaskSource, *, seed: int) -> RestructureGuide:
        return RestructureGuide(self, writable(self.kind, source))

    def way(self, accuracy: float | None) -> Way | None:
        """How a task of this accuracy is rewritten; None where it is not."""
        if accuracy is None or accuracy > self.medium:
            return None
        return "simplify" if accuracy <= self.hard else "diversify"


@dataclass
class Restructured(Note):
    """What became of a task.

    Attributes:
        way: how it was rewritten; empty where it was not.
        before: accuracy of its own group; None where nothing was graded.
        after: accuracy of each rewriting that was answered and graded.
        written, rejected: how many rewritings, and how many of them are no task.
    """

    kind: ClassVar[str] = "restructure"
    way: str = ""
    before: float | None = None
    after: list[float] = field(default_factory=list)
    written: int = 0
    rejected: int = 0


class RestructureGuide(TaskGuide):
    """Has no state."""

    def __init__(self, settings: Restructure, source: ProposedSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        own = await rollout(context, start, n)
        await context.grade(own)
        note = Restructured(before=solved(own))
        context.tree.add_note(note)
        way = self.settings.way(note.before)
        if way is None:
            return own
        prompt = own_prompt(context, asked_of(context.task, getattr(self.settings, way)), way)
        if prompt is None:
            return own
        note.way = way
        written = await rollout(context, prompt, self.settings.rewritings)
        answers = await gather([self.answered(rollout, context, leaf, n, note) for leaf in written])
        return [*own, *written, *(leaf for leaves in answers for leaf in leaves)]

    async def answered(
        self, rollout: Rollout, context: Context, rewriting: Node, n: int | None, note: Restructured
    ) -> list[Node]:
        """The graded answers to a rewriting, which is graded by them; none where it is no task."""
        note.written += 1
        text = "" if rewriting.finish == "length" else rewriting.completion
        task = self.source.proposed(text, context.task)
        if not isinstance(task, Task):
            note.rejected += 1
            rewriting.grade = Grade(self.settings.rejected, False, parts={"rejected": 1.0})
            return []
        leaves = await answers_to(rollout, context.acting("", task), task.messages, task.id, n)
        after = solved(leaves)
        if after is None or note.before is None:
            rewriting.grade = Grade.ungraded("no answer to the rewritten task was graded")
            return leaves
        note.after.append(after)
        rewriting.grade = Grade(after - note.before, True, parts={"rejected": 0.0, "gain": after - note.before})
        return leaves

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Restructured)]
        metrics: dict[str, float] = {
            "rewritings/all": sum(note.written for note in notes),
            "rewritings/rejected": sum(note.rejected for note in notes),
        }
        for way in ("simplify", "diversify"):
            of = [note for note in notes if note.way == way]
            metrics[f"groups/{way}"] = len(of)
            answered = [note for note in of if note.after]
            if answered:
                metrics[f"{way}/before"] = mean([note.before or 0.0 for note in answered])
                metrics[f"{way}/after"] = mean([share for note in answered for share in note.after])
        self._metrics = metrics
