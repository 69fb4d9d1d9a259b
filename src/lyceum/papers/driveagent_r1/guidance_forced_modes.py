"""Each group is answered in every mode of thinking, an equal share in each: the mode is given, not chosen.

Source: DriveAgent-R1, arXiv:2507.20879: reinforcement learning with forced, contrasted modes, before the model chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, solved
from lyceum.core.types import Context, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, begun, notes_of
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class ForcedModes(GuidanceSettings):
    """A group's completions begin with the mark of a mode, the first share of them with the first mark, and so on. The
    mark is not trained; what comes after it is, compared with the whole group, so that the better mode of a task earns
    the higher advantages."""

    requires: ClassVar = ("trajectories",)

    kind: Literal["forced-modes"] = "forced-modes"
    marks: tuple[str, ...] = Field(("<think>", "<tool>"), min_length=2, max_length=8)
    """What a completion in each mode begins with."""

    @field_validator("marks")
    @classmethod
    def _differ(cls, marks: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(marks)) < len(marks) or not all(marks):
            raise ValueError(f"got {list(marks)}; allowed: different texts")
        return marks

    def build(self, source: TaskSource, *, seed: int) -> ForcedModesGuide:
        return ForcedModesGuide(self)


@dataclass
class Forced(Note):
    """The accuracy of a task's completions in each mode that some were graded in."""

    kind: ClassVar[str] = "forced-modes"
    accuracy: dict[str, float] = field(default_factory=dict)


class ForcedModesGuide(TaskGuide):
    """Has no state."""

    def __init__(self, settings: ForcedModes) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        marks = self.settings.marks
        size = n or len(marks)
        shares = [size // len(marks) + (place < size % len(marks)) for place in range(len(marks))]
        groups = await gather(
            [self.forced(rollout, context, start, mark, of) for mark, of in zip(marks, shares, strict=True)]
        )
        leaves = [leaf for group in groups for leaf in group]
        await context.grade(leaves)
        note = Forced()
        for mark, group in zip(marks, groups, strict=True):
            if (accuracy := solved(group)) is not None:
                note.accuracy[mark] = accuracy
        context.tree.add_note(note)
        return leaves

    async def forced(self, rollout: Rollout, context: Context, start: Node, mark: str, n: int) -> list[Node]:
        """Completions that begin with a mark; none where no token is left behind it."""
        tokens = context.encode_after(start.path_tokens(), mark)
        if not n or len(tokens) >= context.tokens_left(start):
            return []
        return await rollout(context, begun(start, tokens, context), n)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Forced)]
        metrics: dict[str, float] = {"groups/contrasted": sum(len(set(note.accuracy.values())) > 1 for note in notes)}
        for number, mark in enumerate(self.settings.marks):
            of = [note.accuracy[mark] for note in notes if mark in note.accuracy]
            if of:
                metrics[f"accuracy/mode_{number}"] = mean(of)
        self._metrics = metrics
