"""A prefix of the solution for tasks whose whole group fails: longer until one sample is correct (GHPO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Hint, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, check_solutions, failed, graded, notes_of, solution_to_give, start_with


@dataclass
class GHPONote(Note):
    """Hints given to a task's group.

    Attributes:
        cold: whether the stage was in its cold start.
        hints: number of shares that give something.
        tried: hint shares that were tried.
        too_long: number of hints that were tried and exceed the model's context.
        solved_at: the share under which a sample was correct; None where none was.
        failed: whether all samples without help were incorrect; set by ``observe``.
    """

    kind: ClassVar[str] = "ghpo"
    cold: bool
    hints: int
    tried: list[float] = field(default_factory=list)
    too_long: int = 0
    solved_at: float | None = None
    failed: bool = False


class GHPO(GuidanceSettings):
    """Where a whole group fails, roll it out again with a share of the solution in its prompt, and train on that.

    Source: GHPO, arXiv:2507.10628, sections 3.3 (difficulty detection) to 3.5 (cold start), and its released code.
    """

    kind: Literal["ghpo"] = "ghpo"
    shares: tuple[float, ...] = Field((0.25, 0.5, 0.75), min_length=1)
    """Shares of the solution to give, one after the other within a step, while the group fails."""
    cold_start_steps: int = Field(20, ge=0)
    """Initial steps without guidance, in which the model learns the format; 0 in the released settings."""
    allow_leaks: bool = False
    """Whether the given prefix may state the answer; otherwise it ends before that."""

    @field_validator("shares")
    @classmethod
    def _shares_rise(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < share < 1 for share in shares) or list(shares) != sorted(set(shares)):
            raise ValueError(f"got {list(shares)}; allowed: rising shares between 0 and 1")
        return shares

    def build(self, source: TaskSource, *, seed: int) -> GHPOGuide:
        return GHPOGuide(self, source)

    def check_tasks(self, source: TaskSource) -> None:
        check_solutions("guidance.ghpo", source, allow_leaks=self.allow_leaks)


class GHPOGuide(TaskGuide):
    """Has no state: which tasks are hard is determined in each step."""

    def __init__(self, settings: GHPO, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    def hints(self, task: Task) -> list[tuple[float, Hint]]:
        """The hint of each share. A share that gives nothing, or no more than the one before, is left out."""
        solution = solution_to_give(self.source, task, allow_leaks=self.settings.allow_leaks)
        hints: list[tuple[float, Hint]] = []
        given = 0
        for share in self.settings.shares:
            count = 0 if solution is None else solution.count(share)
            if solution is not None and count > given:
                hints.append((share, solution.hint(count)))
                given = count
        return hints

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        hints = self.hints(context.task)
        note = GHPONote(cold=context.step < self.settings.cold_start_steps, hints=len(hints))
        context.tree.add_note(note)
        leaves = await rollout(context, start, n)
        if not hints or note.cold:
            return leaves
        await context.grade(leaves)
        return await self.refine(rollout, context, start, n, hints, note) or leaves if failed(leaves) else leaves

    async def refine(
        self,
        rollout: Rollout,
        context: Context,
        start: Node,
        n: int | None,
        hints: Sequence[tuple[float, Hint]],
        note: GHPONote,
    ) -> list[Node]:
        """Roll the group out again with more and more of the solution; returns the last graded group."""
        final: list[Node] = []
        for share, hint in hints:
            hinted = start_with(hint, context, self.source, start)
            if hinted is None:
                note.too_long += 1
                continue
            if context.budget_left <= 0:
                break
            helped = await rollout(context, hinted, n)
            await context.grade(helped)
            note.tried.append(share)
            if graded(helped):
                final = helped
                note.solved_at = None if failed(helped) else share
            if not failed(helped):
                break
        return final

    def observe(self, trees: Sequence[Tree]) -> None:
        for tree, note in notes_of(trees, GHPONote):
            note.failed = failed(tree.unaided)
        notes = [note for _, note in notes_of(trees, GHPONote)]
        refined = [note for note in notes if note.tried]
        metrics: dict[str, float] = {
            "groups/failed": sum(note.failed for note in notes),
            "groups/cold_start": sum(note.failed and note.cold for note in notes),
            "groups/guided": len(refined),
            "without_hints/tasks": sum(not note.hints for note in notes),
            "too_long/hints": sum(note.too_long for note in notes),
        }
        for share in self.settings.shares:
            metrics[f"tried/{share:g}"] = sum(share in note.tried for note in refined)
            metrics[f"solved_at/{share:g}"] = sum(note.solved_at == share for note in refined)
        metrics["solved_at/nothing"] = sum(note.solved_at is None for note in refined)
        self._metrics = metrics
