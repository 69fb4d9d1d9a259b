"""How much of each solution to give so that half of the samples are correct, found in rounds within a step (SEELE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.settings import Composition, GuidanceSettings
from lyceum.core.solution import Solution
from lyceum.core.tree import Node, Tree, is_right
from lyceum.core.types import Context, Grade, Rollout, Sampling, Task, TaskSource
from lyceum.guidance._item_response import fit
from lyceum.guidance.base import (
    AroundContext,
    TaskGuide,
    check_solutions,
    fits,
    notes_of,
    piecewise_lines,
    prompt_with,
    solution_to_give,
)


@dataclass(frozen=True)
class SeeleNote:
    """A task's rounds.

    Attributes:
        rounds: (share of the solution that was given, accuracy) of each.
        next: share with which its next group starts; None where it has no solution to give.
    """

    rounds: Sequence[tuple[float, float]] = ()
    next: float | None = None


class Seele(GuidanceSettings):
    """Draw a group in rounds, each with the share of the solution in its prompt that should give the target accuracy.

    Source: SEELE, arXiv:2509.06923, sections 4.2 and 4.3. All rounds of a task are one group. The paper also imitates
    the hint (weight 0.001 in its loss), which is not done here: a hint is in the prompt and is not trained.
    """

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
        lines = piecewise_lines(self.kind, stage, "which grades a round's trajectories before it draws the next")
        if stage.samples is None or stage.samples >= self.rounds:
            return lines
        return [
            *lines,
            f"guidance.seele.rounds: got {self.rounds} with rollout.samples {stage.samples}; allowed: at most as many "
            "rounds as samples (4 of 8 samples each in the paper)",
        ]

    def check_tasks(self, source: TaskSource) -> None:
        check_solutions("guidance.seele", source, allow_leaks=self.allow_leaks)


class SeeleGuide(TaskGuide):
    """Its state: the share with which each task's next group starts."""

    def __init__(self, settings: Seele, source: TaskSource) -> None:
        self.settings, self.source = settings, source
        self.shares: dict[str, float] = {}

    async def roll(self, rollout: Rollout, task: Task, context: Context) -> Tree:
        solution = solution_to_give(self.source, task, allow_leaks=self.settings.allow_leaks)
        if solution is None:
            tree = await rollout(task, context)
            tree.metadata["seele"] = SeeleNote()
            return tree
        # The first time everything but the last step is given: the model is assumed to need it.
        start = self.shares.get(task.id, (solution.total - 1) / solution.total)
        rounds = Rounds(context, self.settings, self.source, solution, start)
        tree = await rollout(task, rounds)
        rounds.close()
        tree.metadata["seele"] = SeeleNote(rounds.seen, rounds.share)
        return tree

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


class Rounds(AroundContext):
    """Where a rollout requests samples of the task's prompt, draws them in rounds, each under a prompt with a hint.

    A round is graded before the next one is drawn, so that a reward over a whole set of samples gets one round.
    """

    def __init__(self, inner: Context, settings: Seele, source: TaskSource, solution: Solution, share: float) -> None:
        super().__init__(inner)
        self.settings, self.source, self.solution, self.share = settings, source, solution, share
        self.seen: list[tuple[float, float]] = []
        """(actual share given, accuracy) of each round."""
        self._last: tuple[float, list[Node]] | None = None
        self._prompts: dict[int, Node] = {}

    async def extend(self, node: Node, n: int, sampling: Sampling | None = None, *, keep: bool = False) -> list[Node]:
        tree = self.tree_of(node)
        if tree is None:
            return await self.inner.extend(node, n, sampling, keep=keep)
        leaves: list[Node] = []
        sizes = split(n, self.settings.rounds)
        for number, size in enumerate(sizes):
            self.close()
            count = self.fitting(tree.task, self.solution.count(self.share))
            drawn = await self.inner.extend(self.prompt(tree, count), size, sampling, keep=keep)
            leaves += drawn
            self._last = count / self.solution.total, drawn
            if number + 1 < len(sizes):
                with self.inner.returning():
                    await self.inner.grade(drawn)
        return leaves

    async def grade(self, leaves: Sequence[Node]) -> list[Grade]:
        """Grade the leaves of a round that has no grades yet; the others are graded already."""
        new = [leaf for leaf in leaves if leaf.grade is None]
        if new:
            await self.inner.grade(new)
        return [leaf.grade for leaf in leaves if leaf.grade is not None]

    def close(self) -> None:
        """Store the last round's accuracy and predict the share that gives the next one the target accuracy.

        A round without graded samples is ignored.
        """
        if self._last is None:
            return
        share, drawn = self._last
        self._last = None
        graded = [leaf for leaf in drawn if leaf.grade is not None and leaf.grade.outcome is not None]
        if graded:
            self.seen.append((share, sum(map(is_right, graded)) / len(graded)))
            curve = fit([share for share, _ in self.seen], [accuracy for _, accuracy in self.seen])
            self.share = curve.share_at(self.settings.target)

    def fitting(self, task: Task, count: int) -> int:
        """This many steps, or as many as fit in the model's context."""
        while count and not fits(self.source.hinted(task, self.solution.hint(count)), self.inner):
            count -= 1
        return count

    def prompt(self, tree: Tree, count: int) -> Node:
        """The task's prompt with the first ``count`` steps of its solution; the same node for the same count."""
        if not count:
            return tree.root
        if count not in self._prompts:
            self._prompts[count] = prompt_with(tree, self.inner, self.source, self.solution.hint(count))
        return self._prompts[count]


def split(n: int, rounds: int) -> list[int]:
    """``n`` samples in rounds of equal size, the first ones larger by one if ``n`` is not divisible."""
    sizes = [n // rounds + (number < n % rounds) for number in range(rounds)]
    return [size for size in sizes if size]
