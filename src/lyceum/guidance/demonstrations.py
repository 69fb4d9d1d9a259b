"""External demonstrations in the group, beside the policy's own rollouts: RL-PLUS, LUFFY."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Context, Guidance, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, failed, notes_of
from lyceum.models.demonstrations import add_demonstration, demonstration_of, needed_demonstration

LEFT_OUT = ("missing", "too long", "wrong", "ungraded")


@dataclass(frozen=True)
class DemonstrationNote(Note):
    """Result of a task's demonstration: ``added``, ``not needed`` or why it was left out."""

    kind: ClassVar[str] = "demonstrations"
    outcome: str


class Demonstrations(GuidanceSettings):
    """A task's demonstration is a row of its group, graded by the task's own verifier.

    An objective that trains a teacher's tokens (``rl-plus``, ``luffy``) learns from it; with any other it only shifts
    the group's mean.
    """

    kind: Literal["demonstrations"] = "demonstrations"
    when: Literal["always", "failed"] = "always"
    """``always``, or only where every rollout of the task fails."""
    copies: int = Field(1, ge=1)
    """Number of rows of the group that hold it."""
    place: Literal["beside", "instead"] = "beside"
    """``beside`` the rollouts, or ``instead`` of as many of them, incorrect ones first."""
    max_completion_tokens: int = Field(2048, ge=1)
    """Maximum tokens of a demonstration; longer ones, and those that exceed the model's context, are left out and
    counted."""

    def check_tasks(self, source: TaskSource) -> None:
        needed_demonstration(source[0], "guidance 'demonstrations'")

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return DemonstrationGuide(self)


class DemonstrationGuide(TaskGuide):
    """Source: LUFFY, arXiv:2504.14945, and RL-PLUS, arXiv:2508.00222: one row of eight, advantages over all eight."""

    def __init__(self, settings: Demonstrations) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        leaves = await rollout(context, start, n)
        if self.settings.when == "failed":
            await context.grade(leaves)
            if not failed(leaves):
                context.tree.add_note(DemonstrationNote("not needed"))
                return leaves
        text = demonstration_of(context.task)
        found = "missing" if text is None else await checked(text, context, start, self.settings.max_completion_tokens)
        if isinstance(found, str):
            context.tree.add_note(DemonstrationNote(found))
            return leaves
        if self.settings.place == "instead":
            await context.grade(leaves)
        context.tree.add_note(DemonstrationNote("added"))
        return with_demonstration(leaves, found, self.settings.copies, self.settings.place)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = notes_of(trees, DemonstrationNote)
        outcomes = Counter(note.outcome for _, note in notes)
        own = [tree.solved_unaided for tree, _ in notes if tree.solved_unaided is not None]
        metrics: dict[str, float] = {"groups/guided": outcomes["added"]}
        metrics |= {f"left_out/{why.replace(' ', '_')}": outcomes[why] for why in LEFT_OUT}
        if own:
            metrics["correct/own"] = fmean(own)
        self._metrics = metrics


async def checked(text: str, context: Context, start: Node, max_completion_tokens: int) -> Node | str:
    """A demonstration as a graded trajectory of a teacher, or the reason why it is no correct one."""
    tokens = context.encode(text)
    if len(tokens) > min(max_completion_tokens, context.tokens_left(start)):
        return "too long"
    leaf = add_demonstration(start, tokens, text)
    (grade,) = await context.grade([leaf])
    if grade.outcome is None:
        return "ungraded"
    return leaf if is_correct(leaf) else "wrong"


def with_demonstration(own: Sequence[Node], leaf: Node, copies: int, place: Literal["beside", "instead"]) -> list[Node]:
    """The group's rows with ``copies`` of the demonstration; ``instead`` replaces rollouts, incorrect ones first.

    Rollouts of a prompt are exchangeable up to their outcome: it does not matter which incorrect one is replaced.
    """
    if place == "beside":
        return [*own, *[leaf] * copies]
    leave = {id(each) for each in sorted(own, key=is_correct)[:copies]}
    return [*(each for each in own if id(each) not in leave), *[leaf] * copies]
