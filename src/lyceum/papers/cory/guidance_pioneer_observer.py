"""CORY: a pioneer answers the task, an observer sees that answer and gives its own, and both earn both rewards.

Source: Coevolving with the Other You, arXiv:2410.06101, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Context, Grade, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, notes_of
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class PioneerObserver(GuidanceSettings):
    """Each sample of a task is one of the pioneer's, and one of the observer's with the pioneer's in its prompt. Both
    are trained on the sum of their rewards. ``roles`` of the stage says which models play the two."""

    plays: ClassVar[tuple[str, ...]] = ("pioneer", "observer")

    kind: Literal["pioneer-observer"] = "pioneer-observer"
    transfer: bool = True
    """Show the pioneer's answer to the observer; ``false`` gives both the task's own prompt."""
    prompt: str = Field(
        default="Someone else gave the answer above. Answer the task yourself; the answer above may be wrong.",
        min_length=1,
    )
    """What the user says to the observer after the task and the pioneer's answer."""

    def build(self, source: TaskSource, *, seed: int) -> PioneerObserverGuide:
        return PioneerObserverGuide(self)


@dataclass
class AnswerPairs(Note):
    """A task's pairs of answers.

    Attributes:
        graded: pairs of which both answers were graded.
        rescued, lost: those where only the observer's answer is correct, and where only the pioneer's is.
        changed: those whose reward is not the pioneer's own.
        alone: pioneers without an observer, as no token was left for one.
    """

    kind: ClassVar[str] = "pioneer-observer"
    graded: int = 0
    rescued: int = 0
    lost: int = 0
    changed: int = 0
    alone: int = 0


class PioneerObserverGuide(TaskGuide):
    """Has no state: who plays which role follows from the step."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: PioneerObserver) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        first = await rollout(context.acting("pioneer"), start, n)
        second = await gather([self.observe_one(rollout, context.acting("observer"), start, leaf) for leaf in first])
        await context.grade([*first, *(leaf for leaf in second if leaf is not None)])
        note = AnswerPairs()
        context.tree.add_note(note)
        for pioneer, observer in zip(first, second, strict=True):
            share(pioneer, observer, note)
        return [*first, *(leaf for leaf in second if leaf is not None)]

    async def observe_one(self, rollout: Rollout, context: Context, start: Node, seen: Node) -> Node | None:
        """The observer's answer to a pioneer's; None where no token is left for it."""
        if self.settings.transfer:
            answer = {"role": "assistant", "content": seen.completion}
            tokens = context.render([*context.task.messages, answer, {"role": "user", "content": self.settings.prompt}])
            start = context.tree.add_prompt(tokens, context.decode(tokens))
        if context.budget_left <= 0 or not context.tokens_left(start):
            return None
        (leaf,) = await rollout(context, start, 1)
        return leaf

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, AnswerPairs)]
        self._metrics = {
            "pairs/graded": sum(note.graded for note in notes),
            "pairs/rescued": sum(note.rescued for note in notes),
            "pairs/lost": sum(note.lost for note in notes),
            "pairs/alone": sum(note.alone for note in notes),
            "groups_changed/share": mean([float(note.changed > 0) for note in notes]) if notes else 0.0,
        }


def share(pioneer: Node, observer: Node | None, note: AnswerPairs) -> None:
    """Give both answers of a pair the sum of their rewards: r(task, pioneer) + r(task, observer).

    What each earned itself stays in ``parts``, and its verdict is its own. A pair of which one answer has no grade has
    no reward.
    """
    pair = [leaf for leaf in (pioneer, observer) if leaf is not None]
    outcomes = [leaf.grade.outcome for leaf in pair if leaf.grade is not None and leaf.grade.outcome is not None]
    if len(outcomes) < 2 or observer is None:
        note.alone += observer is None
        reason = "no token was left for the observer" if observer is None else "the other answer was not graded"
        for leaf in pair:
            if leaf.grade is None or leaf.grade.outcome is not None:
                leaf.grade = Grade.ungraded(reason)
        return
    note.graded += 1
    note.rescued += is_correct(observer) and not is_correct(pioneer)
    note.lost += is_correct(pioneer) and not is_correct(observer)
    note.changed += sum(outcomes) != outcomes[0]
    for leaf, own in zip(pair, outcomes, strict=True):
        grade = leaf.grade
        assert grade is not None
        parts = {**grade.parts, "own": own, "other": sum(outcomes) - own}
        leaf.grade = replace(grade, outcome=sum(outcomes), correct=grade.verdict, parts=parts)
