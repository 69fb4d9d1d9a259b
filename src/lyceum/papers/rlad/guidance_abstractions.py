"""One role writes short abstractions for a problem, another solves it with their help (RLAD); both are trained.

Source: RLAD, arXiv:2510.02263: an abstraction earns the solver's mean accuracy with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, solved
from lyceum.core.types import Context, Grade, Hint, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, answers_to, asked_of, notes_of, own_prompt, states_answer
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class Abstractions(GuidanceSettings):
    """The abstractor writes what may help with the task; the solver answers it with each abstraction in its prompt, as
    often as the rollout samples. Those of one task are compared with each other, and answers with those under the same
    abstraction. One that states the answer earns nothing, and is not solved with."""

    plays: ClassVar[tuple[str, ...]] = ("abstractor", "solver")

    kind: Literal["abstractions"] = "abstractions"
    abstractions: int = Field(default=4, ge=1, le=64)
    """Abstractions per task."""
    ask: str = Field(
        default="{problem}\n\nDo not solve this problem. Write, in a few lines, the facts and the method that help "
        "somebody else to solve it.",
        pattern=r"\{problem\}",
    )
    """What the user says to the abstractor; ``{problem}`` is the task's last message."""

    def build(self, source: TaskSource, *, seed: int) -> AbstractionsGuide:
        return AbstractionsGuide(self, source)


@dataclass
class Abstracted(Note):
    """What became of a task's abstractions.

    Attributes:
        written, distinct, leaked, truncated: how many; those that state the answer and unfinished ones are not used.
        accuracy: the solver's, with each one that was used and graded.
    """

    kind: ClassVar[str] = "abstractions"
    written: int = 0
    distinct: int = 0
    leaked: int = 0
    truncated: int = 0
    accuracy: list[float] = field(default_factory=list)


class AbstractionsGuide(TaskGuide):
    """Has no state."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: Abstractions, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        abstractor = context.acting("abstractor")
        prompt = own_prompt(abstractor, asked_of(context.task, self.settings.ask), "abstractions")
        if prompt is None:
            return []
        written = await rollout(abstractor, prompt, self.settings.abstractions)
        note = Abstracted(len(written), len({leaf.completion for leaf in written}))
        context.tree.add_note(note)
        answers = await gather([self.answers(rollout, context, leaf, n, note) for leaf in written])
        for leaf, leaves in zip(written, answers, strict=True):
            leaf.grade = graded(leaves, note)
        return [*written, *(leaf for leaves in answers for leaf in leaves or ())]

    async def answers(
        self, rollout: Rollout, context: Context, abstraction: Node, n: int | None, note: Abstracted
    ) -> list[Node] | None:
        """The solver's graded answers with an abstraction; None where it is not used."""
        text, solver = abstraction.completion, context.acting("solver")
        truncated = abstraction.finish == "length"
        note.truncated += truncated
        note.leaked += (leaked := not truncated and states_answer(context.task, text))
        if truncated or leaked:
            return None
        hinted = self.source.hinted(context.task, Hint("abstraction", text))
        return await answers_to(rollout, solver, hinted.messages, f"abstraction {text}", n)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Abstracted)]
        used = [share for note in notes for share in note.accuracy]
        self._metrics = {
            "abstractions/all": sum(note.written for note in notes),
            "abstractions/distinct": sum(note.distinct for note in notes),
            "abstractions/leaked": sum(note.leaked for note in notes),
            "abstractions/truncated": sum(note.truncated for note in notes),
            "abstractions/told_apart": sum(len(set(note.accuracy)) > 1 for note in notes),
        }
        if used:
            best = [max(note.accuracy) for note in notes if note.accuracy]
            self._metrics |= {"accuracy/mean": mean(used), "accuracy/best": mean(best)}


def graded(answers: Sequence[Node] | None, note: Abstracted) -> Grade:
    """An abstraction's grade: the accuracy of the answers with it, 0 where it was not used; its verdict is whether it
    was."""
    if answers is None:
        return Grade(0.0, False, parts={"used": 0.0})
    accuracy = solved(answers)
    if accuracy is None:
        return Grade.ungraded("no answer with the abstraction was graded")
    note.accuracy.append(accuracy)
    return Grade(accuracy, True, parts={"used": 1.0, "helped": accuracy})
