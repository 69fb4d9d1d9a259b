"""Tiered hints for tasks whose whole group fails: the smallest hint under which one sample is correct (Scaf-GRPO)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.notes import Note
from lyceum.core.settings import Composition, GuidanceSettings
from lyceum.core.solution import ladder_of, levels_of
from lyceum.core.tree import Node, Tree, graft
from lyceum.core.types import Context, Hint, Rollout, TaskSource
from lyceum.guidance.base import (
    TaskGuide,
    check_ladders,
    failed,
    graded,
    instead,
    notes_of,
    start_with,
    success,
)
from lyceum.utils.aio import gather


@dataclass
class ScaffoldNote(Note):
    """Hints given to a task's group.

    Attributes:
        exempt: whether the stage was still in its exempt period without hints.
        levels: number of levels of the task's ladder.
        samples: number of samples under a hint of each tier.
        too_long: number of levels that were tried and exceed the model's context.
        solved_by: tier of the lowest level under which a sample was correct; None where none was.
        hints: hint texts of the correct samples that are trained.
        failed: whether all samples without help were incorrect; set by ``observe``.
    """

    kind: ClassVar[str] = "scaffold"
    exempt: bool
    levels: int
    samples: dict[str, int] = field(default_factory=dict)
    too_long: int = 0
    solved_by: str | None = None
    hints: list[str] = field(default_factory=list)
    failed: bool = False


class Scaffold(GuidanceSettings):
    """Where a whole group fails, climb the task's ladder of hints and replace a failure by the first hinted success.

    Source: Scaf-GRPO, arXiv:2510.19807, section 3.2 and algorithm 1, and its released code. One sample per level; the
    hinted trajectory shares its group's baseline, and its log-probabilities are those under the hinted prompt.
    """

    kind: Literal["scaffold"] = "scaffold"
    exempt: float = Field(0.15, ge=0, le=1)
    """Share of the stage without hints, at its start (no unit): tasks that only need practice get solved there."""
    stalled_after: int = Field(1, ge=1)
    """Number of consecutive groups of a task, this one included, that must have failed before it gets hints; 1
    requires only this one, as in the paper."""
    tiers: tuple[str, ...] = Field(("knowledge", "planning", "solution"), min_length=1)
    """Tiers in the order in which they are tried; within a tier a hint includes those before it."""
    search: Literal["one-by-one", "together"] = "one-by-one"
    """``one-by-one`` stops at the first success, as in the paper; ``together`` samples all levels at once and takes the
    lowest that is correct, as in its code: more tokens, fewer rounds."""
    replaced: int = Field(1, ge=1)
    """Number of failed trajectories to replace, each by a different success, from the lowest levels."""
    treatment: Literal["hinted", "unhinted"] = "hinted"
    """``hinted`` trains the success under the prompt it was written under; ``unhinted`` puts it below the task's own
    prompt, with the log-probabilities of the hinted one (the paper's off-policy ablation)."""
    allow_leaks: bool = False
    """Whether hints may state the answer."""

    def build(self, source: TaskSource, *, seed: int) -> ScaffoldGuide:
        return ScaffoldGuide(self, source)

    def check(self, stage: Composition) -> list[str]:
        if stage.trajectories is None or self.replaced < stage.trajectories:
            return []
        key = stage.trajectories_key
        return [
            f"guidance.scaffold.replaced: got {self.replaced} with {key} {stage.trajectories}, which leaves "
            f"nothing to compare the hinted ones with; allowed: fewer than {key}"
        ]

    def check_tasks(self, source: TaskSource) -> None:
        check_ladders("guidance.scaffold", source, allow_leaks=self.allow_leaks, tiers=self.tiers)


class ScaffoldGuide(TaskGuide):
    """Climbs, and counts each task's consecutive failures where ``stalled_after`` requires it."""

    def __init__(self, settings: Scaffold, source: TaskSource) -> None:
        self.settings, self.source = settings, source
        self.failures: dict[str, int] = {}

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        task, settings = context.task, self.settings
        levels = levels_of(ladder_of(task), settings.tiers)
        note = ScaffoldNote(exempt=context.progress < settings.exempt, levels=len(levels))
        context.tree.add_note(note)
        leaves = await rollout(context, start, n)
        if levels and not note.exempt and self.failures.get(task.id, 0) + 1 >= settings.stalled_after:
            await context.grade(leaves)
            if failed(leaves):
                return await self.climb(Climb(rollout, context, start, levels, note), leaves)
        return leaves

    async def climb(self, climb: Climb, leaves: Sequence[Node]) -> list[Node]:
        """Find the smallest hints that suffice, and replace failed trajectories by their successes."""
        search = self.one_by_one if self.settings.search == "one-by-one" else self.together
        tried = await search(climb)
        note, context, start = climb.note, climb.context, climb.start
        note.samples = dict(Counter(one.hint.tier for one in tried))
        found = [(one, leaf) for one in tried if (leaf := success(one.leaves)) is not None][: self.settings.replaced]
        note.solved_by = found[0][0].hint.tier if found else None
        note.hints = [one.hint.text for one, _ in found]
        wrong = graded(leaves)
        places = random.Random(context.seed("scaffold", start.address)).sample(wrong, min(len(found), len(wrong)))
        for place, (one, leaf) in zip(places, found, strict=False):
            if self.settings.treatment == "unhinted":
                leaf = graft(leaf, start)
                leaf.stats["hint"] = one.hint
            leaves = instead(leaves, place, leaf)
        return list(leaves)

    async def one_by_one(self, climb: Climb) -> list[Attempt]:
        tried: list[Attempt] = []
        missing = self.settings.replaced
        for hint in climb.levels:
            if not missing or climb.context.budget_left <= 0:
                break
            hinted = self.hinted(climb, hint)
            if hinted is not None:
                tried.append(await attempt(climb.rollout, climb.context, hint, hinted))
                missing -= success(tried[-1].leaves) is not None
        return tried

    async def together(self, climb: Climb) -> list[Attempt]:
        context = climb.context
        starts = [(hint, start) for hint in climb.levels if (start := self.hinted(climb, hint)) is not None]
        starts = starts[: context.budget_left]
        share = context.budget_left // max(1, len(starts))
        return await gather(attempt(climb.rollout, context.share(share), hint, start) for hint, start in starts)

    def hinted(self, climb: Climb, hint: Hint) -> Node | None:
        start = start_with(hint, climb.context, self.source, climb.start)
        climb.note.too_long += start is None
        return start

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = notes_of(trees, ScaffoldNote)
        for tree, note in notes:
            note.failed = failed(tree.unaided)
        if self.settings.stalled_after > 1:
            for tree, note in notes:
                if note.failed:
                    self.failures[tree.task.id] = self.failures.get(tree.task.id, 0) + 1
                elif tree.graded:
                    self.failures.pop(tree.task.id, None)
        climbed = [note for _, note in notes if note.samples]
        metrics: dict[str, float] = {
            "groups/failed": sum(note.failed for _, note in notes),
            "groups/exempt": sum(note.failed and note.exempt for _, note in notes),
            "groups/guided": len(climbed),
            "without_hints/tasks": sum(not note.levels for _, note in notes),
            "too_long/hints": sum(note.too_long for _, note in notes),
        }
        for tier in self.settings.tiers:
            metrics[f"samples/{tier}"] = sum(note.samples.get(tier, 0) for note in climbed)
            metrics[f"solved_by/{tier}"] = sum(note.solved_by == tier for note in climbed)
        metrics["solved_by/nothing"] = sum(note.solved_by is None for note in climbed)
        self._metrics = metrics

    def state_dict(self) -> dict[str, Any]:
        return {"failures": dict(self.failures)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance.scaffold", given=state, needed=self.state_dict())
        self.failures = dict(state["failures"])


@dataclass(frozen=True)
class Climb:
    """What a failed task's search for a hint needs."""

    rollout: Rollout
    context: Context
    start: Node
    levels: Sequence[Hint]
    note: ScaffoldNote


@dataclass(frozen=True)
class Attempt:
    """One graded sample under a hint."""

    hint: Hint
    leaves: list[Node]


async def attempt(rollout: Rollout, context: Context, hint: Hint, start: Node) -> Attempt:
    """A sample from a start with the hint in its prompt."""
    leaves = await rollout(context, start, 1)
    await context.grade(leaves)
    return Attempt(hint, leaves)
