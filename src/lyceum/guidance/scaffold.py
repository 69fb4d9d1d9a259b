"""Tiered hints for tasks whose whole group fails: the smallest hint under which one sample is correct (Scaf-GRPO)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.settings import Composition, GuidanceSettings
from lyceum.core.solution import ladder_of, levels_of
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Hint, Rollout, Sampling, Task, TaskSource
from lyceum.guidance.base import (
    AroundContext,
    TaskGuide,
    check_ladders,
    failed,
    fits,
    notes_of,
    success,
    take_over,
)
from lyceum.utils.aio import gather


@dataclass
class ScaffoldNote:
    """Hints given to a task's group.

    Attributes:
        failed: whether all samples without help were incorrect.
        exempt: whether the stage was still in its exempt period without hints.
        levels: number of levels of the task's ladder.
        asked: number of samples under a hint of each tier.
        too_long: number of levels that exceed the model's context.
        solved_by: tier of the lowest level under which a sample was correct; None where none was.
        hints: hint texts of the correct samples that are trained.
    """

    failed: bool
    exempt: bool
    levels: int
    asked: dict[str, int] = field(default_factory=dict)
    too_long: int = 0
    solved_by: str | None = None
    hints: list[str] = field(default_factory=list)


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
        if stage.samples is None or self.replaced < stage.samples:
            return []
        return [
            f"guidance.scaffold.replaced: got {self.replaced} with rollout.samples {stage.samples}, which leaves "
            f"nothing to compare the hinted ones with; allowed: fewer than rollout.samples"
        ]

    def check_tasks(self, source: TaskSource) -> None:
        check_ladders("guidance.scaffold", source, allow_leaks=self.allow_leaks, tiers=self.tiers)


class ScaffoldGuide(TaskGuide):
    """Climbs, and counts each task's consecutive failures where ``stalled_after`` requires it."""

    def __init__(self, settings: Scaffold, source: TaskSource) -> None:
        self.settings, self.source = settings, source
        self.failures: dict[str, int] = {}

    async def roll(self, rollout: Rollout, task: Task, context: Context) -> Tree:
        settings = self.settings
        levels = levels_of(ladder_of(task), settings.tiers)
        exempt = context.progress < settings.exempt
        open_gate = not exempt and self.failures.get(task.id, 0) + 1 >= settings.stalled_after
        with context.returning() if levels and open_gate else nullcontext():
            tree = await rollout(task, context)
        note = tree.metadata["scaffold"] = ScaffoldNote(failed(tree), exempt, len(levels))
        if levels and open_gate and note.failed:
            await self.climb(rollout, tree, levels, context, note)
        return tree

    async def climb(
        self, rollout: Rollout, tree: Tree, levels: Sequence[Hint], context: Context, note: ScaffoldNote
    ) -> None:
        """Find the smallest hints that suffice, and replace failed trajectories by their successes."""
        fitting = [hint for hint in levels if fits(self.source.hinted(tree.task, hint), context)]
        note.too_long = len(levels) - len(fitting)
        search = self.one_by_one if self.settings.search == "one-by-one" else self.together
        tried = await search(rollout, tree.task, fitting, context)
        note.asked = dict(Counter(hint.tier for hint, _ in tried))
        tree.sampled_tokens += sum(helped.sampled_tokens for _, helped in tried)
        found = [(hint, helped, leaf) for hint, helped in tried if (leaf := success(helped)) is not None]
        found = found[: self.settings.replaced]
        note.solved_by = found[0][0].tier if found else None
        note.hints = [hint.text for hint, _, _ in found]
        wrong = tree.graded
        places = random.Random(context.seed("scaffold", "replaced")).sample(wrong, min(len(found), len(wrong)))
        for place, (hint, helped, leaf) in zip(places, found, strict=False):
            if self.settings.treatment == "unhinted":
                tree.chosen = tree.trajectories  # the hinted success replaces a failed one
                leaf = tree.graft(leaf, tree.root)
                leaf.stats["hint"] = hint
            else:
                take_over(tree, helped)
            tree.replace(place, leaf)

    async def one_by_one(
        self, rollout: Rollout, task: Task, levels: Sequence[Hint], context: Context
    ) -> list[tuple[Hint, Tree]]:
        tried: list[tuple[Hint, Tree]] = []
        missing = self.settings.replaced
        for hint in levels:
            if not missing or context.budget_left <= 0:
                break
            with nullcontext() if hint is levels[-1] else context.returning():
                tried.append((hint, await self.attempt(rollout, task, hint, context)))
            missing -= success(tried[-1][1]) is not None
        return tried

    async def together(
        self, rollout: Rollout, task: Task, levels: Sequence[Hint], context: Context
    ) -> list[tuple[Hint, Tree]]:
        levels = levels[: context.budget_left]
        if not levels:
            return []
        share = context.budget_left // len(levels)
        helped = await gather(self.attempt(rollout, task, hint, WithShare(context, share)) for hint in levels)
        return list(zip(levels, helped, strict=True))

    async def attempt(self, rollout: Rollout, task: Task, hint: Hint, context: Context) -> Tree:
        return await rollout(replace(self.source.hinted(task, hint), samples=1), context)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = notes_of(trees, ScaffoldNote)
        if self.settings.stalled_after > 1:
            for tree, note in notes:
                if note.failed:
                    self.failures[tree.task.id] = self.failures.get(tree.task.id, 0) + 1
                elif tree.graded:
                    self.failures.pop(tree.task.id, None)
        climbed = [note for _, note in notes if note.asked]
        metrics: dict[str, float] = {
            "groups/failed": sum(note.failed for _, note in notes),
            "groups/exempt": sum(note.failed and note.exempt for _, note in notes),
            "groups/guided": len(climbed),
            "without_hints/tasks": sum(not note.levels for _, note in notes),
            "too_long/hints": sum(note.too_long for _, note in notes),
        }
        for tier in self.settings.tiers:
            metrics[f"asked/{tier}"] = sum(note.asked.get(tier, 0) for note in climbed)
            metrics[f"solved_by/{tier}"] = sum(note.solved_by == tier for note in climbed)
        metrics["solved_by/nothing"] = sum(note.solved_by is None for note in climbed)
        self._metrics = metrics

    def state_dict(self) -> dict[str, Any]:
        return {"failures": dict(self.failures)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance.scaffold", given=state, needed=self.state_dict())
        self.failures = dict(state["failures"])


class WithShare(AroundContext):
    """A context for one of several concurrent rollouts, with its own share of the task's budget."""

    def __init__(self, inner: Context, tokens: int) -> None:
        super().__init__(inner)
        self.tokens = tokens

    @property
    def budget_left(self) -> int:
        return max(0, min(self.tokens, self.inner.budget_left))

    async def extend(self, node: Node, n: int, sampling: Sampling | None = None, *, keep: bool = False) -> list[Node]:
        drawn = await super().extend(node, n, sampling, keep=keep)
        self.tokens -= sum(len(child.tokens) for child in drawn)
        return drawn
