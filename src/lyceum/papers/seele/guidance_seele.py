"""How much of each solution to give so that half of the samples are correct, found in rounds within a step (SEELE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.notes import Note
from lyceum.core.settings import Composition, GuidanceSettings
from lyceum.core.solution import Solution
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Context, Rollout, TaskSource
from lyceum.guidance.base import (
    TaskGuide,
    check_solutions,
    graded,
    notes_of,
    solution_to_give,
    start_with,
)
from lyceum.papers.seele._item_response import fit


@dataclass(frozen=True)
class SeeleNote(Note):
    """A task's rounds.

    Attributes:
        rounds: (share of the solution that was given, accuracy) of each.
        next: share with which its next group starts; None where it has no solution to give.
    """

    kind: ClassVar[str] = "seele"
    rounds: Sequence[tuple[float, float]] = ()
    next: float | None = None


class Seele(GuidanceSettings):
    """Draw a group in rounds, each with the share of the solution in its prompt that should give the target accuracy.

    Source: SEELE, arXiv:2509.06923, sections 4.2 and 4.3. All rounds of a task are one group. The paper also imitates
    the hint (weight 0.001 in its loss), which is not done here: a hint is in the prompt and is not trained.
    """

    requires: ClassVar = ("trajectories",)

    kind: Literal["seele"] = "seele"
    rounds: int = Field(4, ge=2)
    """Number of rounds in which a group's samples are drawn, of equal size."""
    target: float = Field(0.5, gt=0, lt=1)
    """Target accuracy of a round (no unit)."""
    allow_leaks: bool = False
    """Whether the given prefix may state the answer; otherwise it ends before that."""

    def build(self, source: TaskSource, *, seed: int) -> SeeleGuide:
        return SeeleGuide(self, source)

    def check(self, stage: Composition) -> list[str]:
        wanted = stage.trajectories
        if wanted is None or wanted >= self.rounds:
            return []
        return [
            f"guidance.seele.rounds: got {self.rounds} with {wanted} trajectories per task (rollout); allowed: at most "
            "as many rounds (4 of 8 samples each in the paper)"
        ]

    def check_tasks(self, source: TaskSource) -> None:
        check_solutions("guidance.seele", source, allow_leaks=self.allow_leaks)


class SeeleGuide(TaskGuide):
    """Its state: the share with which each task's next group starts."""

    def __init__(self, settings: Seele, source: TaskSource) -> None:
        self.settings, self.source = settings, source
        self.shares: dict[str, float] = {}

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        task = context.task
        solution = solution_to_give(self.source, task, allow_leaks=self.settings.allow_leaks)
        if solution is None or n is None:
            context.tree.add_note(SeeleNote())
            return await rollout(context, start, n)
        # The first time everything but the last step is given: the model is assumed to need it.
        share = self.shares.get(task.id, (solution.total - 1) / solution.total)
        seen: list[tuple[float, float]] = []
        leaves: list[Node] = []
        for size in split(n, self.settings.rounds):
            given, hinted = self.start(context, start, solution, share)
            left = context.budget_left * size // (n - len(leaves)) if len(leaves) < n else context.budget_left
            drawn = await rollout(context.share(left), hinted, size)
            await context.grade(drawn)
            leaves += drawn
            if known := graded(drawn):
                seen.append((given, sum(map(is_correct, known)) / len(known)))
                curve = fit([share for share, _ in seen], [accuracy for _, accuracy in seen])
                share = curve.share_at(self.settings.target)
        context.tree.add_note(SeeleNote(seen, share))
        return leaves

    def start(self, context: Context, start: Node, solution: Solution, share: float) -> tuple[float, Node]:
        """(share that is given, start with it): as many whole steps as the share has and the context holds."""
        count = solution.count(share)
        while count:
            hinted = start_with(solution.hint(count), context, self.source, start)
            if hinted is not None:
                return count / solution.total, hinted
            count -= 1
        return 0.0, start

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = notes_of(trees, SeeleNote)
        self.shares |= {tree.task.id: note.next for tree, note in notes if note.next is not None}
        metrics: dict[str, float] = {"without_hints/tasks": sum(note.next is None for _, note in notes)}
        for number in range(self.settings.rounds):
            seen = [note.rounds[number] for _, note in notes if number < len(note.rounds)]
            if seen:
                metrics[f"share/round_{number + 1}"] = sum(share for share, _ in seen) / len(seen)
                metrics[f"accuracy/round_{number + 1}"] = sum(accuracy for _, accuracy in seen) / len(seen)
        self._metrics = metrics

    def state_dict(self) -> dict[str, Any]:
        return {"shares": dict(self.shares)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance.seele", given=state, needed=self.state_dict())
        self.shares = dict(state["shares"])


def split(n: int, rounds: int) -> list[int]:
    """``n`` samples in rounds of equal size, the first ones larger by one if ``n`` is not divisible."""
    sizes = [n // rounds + (number < n % rounds) for number in range(rounds)]
    return [size for size in sizes if size]
