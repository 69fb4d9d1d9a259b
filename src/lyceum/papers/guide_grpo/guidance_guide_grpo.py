"""Guide: where every unguided rollout fails, sample with a hint in the prompt and train without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.solution import ladder_of, levels_of
from lyceum.core.tree import Node, Tree, graft, is_correct, solved
from lyceum.core.types import Context, Guidance, Hint, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, check_ladders, failed, graded, notes_of, start_with

Keep = Literal["group", "right", "both"]


@dataclass(frozen=True)
class GuideNote(Note):
    """Result of a task's hint.

    Attributes:
        outcome: ``not needed``, why no hint was given (``no hint``, ``no budget``, ``too long``), ``rescued`` or
            ``failed``.
        unguided: accuracy without the hint; None where no grader judges.
        right, hinted: number of correct and of all samples under the hint.
        hint: the hint that was given.
    """

    kind: ClassVar[str] = "guide-grpo"
    outcome: str
    unguided: float | None
    right: int = 0
    hinted: int = 0
    hint: Hint | None = None


class HintedSamples(GuidanceSettings):
    """For a task whose rollouts all fail, trajectories written under a hint, trained under its own prompt.

    ``objective: guide`` corrects for the hint; any other objective treats them as the unguided policy's own.
    """

    formerly: ClassVar[tuple[str, ...]] = ("guide",)
    kind: Literal["guide-grpo"] = "guide-grpo"
    tiers: tuple[str, ...] = Field(("knowledge", "planning", "solution"), min_length=1)
    """Tiers that may be shown, from abstract to concrete: all hints of the last one that a task has are shown."""
    samples: int | None = Field(None, ge=1)
    """Completions under the hint; by default as many as without it."""
    keep: Keep = "group"
    """Which rollouts are trained once a guided one is correct: ``group``: the guided ones, in place of all others;
    ``right``: the correct ones among them, each in place of a failure; ``both``: all, in one larger group."""
    allow_leaks: bool = False
    """Whether hints may state the final answer."""

    def check_tasks(self, source: TaskSource) -> None:
        check_ladders("guidance.guide", source, allow_leaks=self.allow_leaks, tiers=self.tiers)

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return GuideGRPO(self, source)


class GuideGRPO(TaskGuide):
    """Source: Guide-GRPO, arXiv:2506.13923; the authors' code (guide_rl) replaces the whole group, as ``keep: group``
    does."""

    def __init__(self, settings: HintedSamples, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        leaves = await rollout(context, start, n)
        await context.grade(leaves)
        note = GuideNote("not needed", solved(leaves))
        if failed(leaves):
            leaves, note = await self.help(rollout, context, start, n, leaves)
        context.tree.add_note(note)
        return leaves

    async def help(
        self, rollout: Rollout, context: Context, start: Node, n: int | None, own: list[Node]
    ) -> tuple[list[Node], GuideNote]:
        """Sample once more under a hint; returns what is trained, and the result."""
        unguided = solved(own)
        hint = self.hint_for(context.task)
        if hint is None:
            return own, GuideNote("no hint", unguided)
        if context.budget_left <= 0:
            return own, GuideNote("no budget", unguided)
        hinted = start_with(hint, context, self.source, start)
        if hinted is None:
            return own, GuideNote("too long", unguided)
        helped = await rollout(context, hinted, self.settings.samples or n)
        await context.grade(helped)
        copies = [graft(leaf, start) for leaf in graded(helped)]
        right = sum(map(is_correct, copies))
        note = GuideNote("rescued" if right else "failed", unguided, right, len(copies), hint)
        return chosen(own, copies, self.settings.keep), note

    def hint_for(self, task: Task) -> Hint | None:
        levels = levels_of(ladder_of(task), self.settings.tiers)
        return levels[-1] if levels else None

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, GuideNote)]
        outcomes = Counter(note.outcome for note in notes)
        hinted = sum(note.hinted for note in notes)
        unguided = [note.unguided for note in notes if note.unguided is not None]
        metrics: dict[str, float] = {
            "groups/failed": len(notes) - outcomes["not needed"],
            "groups/guided": outcomes["rescued"] + outcomes["failed"],
            "groups/rescued": outcomes["rescued"],
            "without_hints/tasks": outcomes["no hint"],
            "too_long/hints": outcomes["too long"],
        }
        if hinted:
            metrics["correct/guided"] = sum(note.right for note in notes) / hinted
        if unguided:
            metrics["correct/unguided"] = fmean(unguided)
        self._metrics = metrics


def chosen(own: Sequence[Node], guided: Sequence[Node], keep: Keep) -> list[Node]:
    """What is trained of a group that failed.

    Args:
        own: its failed rollouts.
        guided: rollouts written under the hint, moved below the task's own prompt.
        keep: as in the settings.
    Returns:
        The failed group unchanged where no guided rollout is correct: all its rollouts have the same outcome.
    """
    right = [leaf for leaf in guided if is_correct(leaf)]
    if not right:
        return list(own)
    match keep:
        case "group":
            return list(guided)
        case "right":
            return [*own[: max(0, len(own) - len(right))], *right]
        case "both":
            return [*own, *guided]
