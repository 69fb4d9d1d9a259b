"""Criteria of a good answer in the prompt, fewer from sample to sample and from step to step (RuscaRL)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from pydantic import Field

from lyceum.core.rubric import Criterion, rubric_of
from lyceum.core.settings import Composition, GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Hint, Rollout, Sampling, Task, TaskSource
from lyceum.guidance.base import (
    CHECKED,
    AroundContext,
    TaskGuide,
    fits,
    leaks,
    notes_of,
    piecewise_lines,
    prompt_with,
)
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError


@dataclass(frozen=True)
class RubricNote:
    """Number of criteria that a task can show, and the number that each sample was shown."""

    criteria: int
    shown: Sequence[int] = ()


class RubricScaffold(GuidanceSettings):
    """Show each sample of a group a different share of the task's rubric: the first all of it, the last nothing.

    Source: RuscaRL, arXiv:2508.16949, section 3 (intra-group differentiation, inter-step decay), and its released code,
    which trains every sample under the task's own prompt. Samples are drawn under the criteria that they were shown.
    """

    kind: Literal["rubric-scaffold"] = "rubric-scaffold"
    start: float = Field(0.2, ge=0, le=1)
    """Progress of the stage, as a share, at which half of the criteria are left (no unit)."""
    steepness: float = Field(125.0, gt=0)
    """Steepness of their decay (no unit): at 10 over the whole stage, at 125 within a twentieth of it."""
    order: Literal["random", "listed"] = "random"
    """Which criteria a sample is shown: a random choice, or the first ones."""
    treatment: Literal["unhinted", "hinted"] = "unhinted"
    """``unhinted`` trains completions under the task's own prompt, as the released code does; ``hinted``
    under the prompt with the criteria."""
    allow_leaks: bool = False
    """Whether criteria that state the answer are shown too; otherwise they only count in the reward."""

    def build(self, source: TaskSource, *, seed: int) -> RubricScaffoldGuide:
        return RubricScaffoldGuide(self, source)

    def check(self, stage: Composition) -> list[str]:
        if self.treatment == "hinted":
            return []
        because = "whose treatment 'unhinted' would show the criteria to the first piece alone"
        return piecewise_lines(self.kind, stage, because)

    def check_tasks(self, source: TaskSource) -> None:
        key = "guidance.rubric-scaffold"
        if not any(criteria_to_show(source[i], allow_leaks=self.allow_leaks) for i in source.looked_at(CHECKED)):
            raise RecipeError(
                f"{key}: none of the tasks has criteria to show; allowed: tasks with a rubric (tasks.columns.rubric of "
                "a dataset) that does not only say the answer"
            )
        if self.order == "random" and source.rubric_in_order:
            raise RecipeError(
                f"{key}.order: got 'random', but a prompt of these tasks shows criteria from the first on; "
                "allowed: listed"
            )


class RubricScaffoldGuide(TaskGuide):
    """Has no state: what is shown depends on the sample's index and the stage's progress."""

    def __init__(self, settings: RubricScaffold, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, task: Task, context: Context) -> Tree:
        criteria = criteria_to_show(task, allow_leaks=self.settings.allow_leaks)
        if not criteria:
            tree = await rollout(task, context)
            tree.metadata["rubric-scaffold"] = RubricNote(0)
            return tree
        scaffolded = Scaffolded(context, self.settings, self.source, criteria)
        tree = await rollout(task, scaffolded)
        if self.settings.treatment == "unhinted" and tree.chosen is None:
            tree.chosen = [leaf for leaf in tree.trajectories if leaf.path()[0] is tree.root]
        tree.metadata["rubric-scaffold"] = RubricNote(len(criteria), scaffolded.shown)
        return tree

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = notes_of(trees, RubricNote)
        metrics: dict[str, float] = {"without_hints/tasks": sum(not note.criteria for _, note in notes)}
        shares = [shown / note.criteria for _, note in notes for shown in note.shown]
        if shares:
            metrics["shown/mean"] = fmean(shares)
        outcomes: dict[str, list[float]] = {"with_criteria": [], "without": []}
        for tree in trees:
            for leaf, _, outcome in tree.graded_with_outcome():
                shown = any(node.stats.get("criteria") for node in leaf.path())
                outcomes["with_criteria" if shown else "without"].append(outcome)
        self._metrics = metrics | {f"outcome/{name}": fmean(values) for name, values in outcomes.items() if values}


class Scaffolded(AroundContext):
    """Where a rollout requests samples of the task's prompt, draws each under the prompt with its share of criteria."""

    def __init__(
        self, inner: Context, settings: RubricScaffold, source: TaskSource, criteria: Sequence[Criterion]
    ) -> None:
        super().__init__(inner)
        self.settings, self.source, self.criteria = settings, source, criteria
        self.shown: list[int] = []
        self._prompts: dict[tuple[int, ...], Node] = {}

    async def extend(self, node: Node, n: int, sampling: Sampling | None = None, *, keep: bool = False) -> list[Node]:
        tree = self.tree_of(node)
        if tree is None:
            return await self.inner.extend(node, n, sampling, keep=keep)
        places: dict[tuple[int, ...], list[int]] = {}
        for i in range(n):
            places.setdefault(self.fitting(tree.task, self.choose(i, n)), []).append(i)
        prompts = {chosen: self.prompt(tree, chosen) for chosen in places}
        drawn = await gather(
            self.inner.extend(prompts[chosen], len(at), sampling, keep=keep) for chosen, at in places.items()
        )
        samples = {
            i: leaf
            for at, leaves in zip(places.values(), drawn, strict=True)
            for i, leaf in zip(at, leaves, strict=True)
        }
        for chosen, at in places.items():
            for i in at:
                if chosen and self.settings.treatment == "unhinted":
                    samples[i] = tree.graft(samples[i], tree.root)
                samples[i].stats["criteria"] = len(chosen)
        return [samples[i] for i in range(n)]

    def choose(self, i: int, n: int) -> tuple[int, ...]:
        """Indices of the criteria that sample ``i`` of ``n`` is shown."""
        settings = self.settings
        share = share_shown(i, n, self.progress, start=settings.start, steepness=settings.steepness)
        count = round(share * len(self.criteria))
        if settings.order == "listed":
            return tuple(range(count))
        seed = self.seed("rubric", len(self.shown))
        return tuple(sorted(random.Random(seed).sample(range(len(self.criteria)), count)))

    def fitting(self, task: Task, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """The chosen criteria, or the first of them that fit in the model's context."""
        while chosen and not fits(self.source.hinted(task, self.hint(task, chosen)), self.inner):
            chosen = chosen[:-1]
        self.shown.append(len(chosen))
        return chosen

    def hint(self, task: Task, chosen: tuple[int, ...]) -> Hint:
        return self.source.rubric_hint(task, [self.criteria[number] for number in chosen])

    def prompt(self, tree: Tree, chosen: tuple[int, ...]) -> Node:
        """The task's prompt with some criteria; the same node for the same criteria."""
        if not chosen:
            return tree.root
        if chosen not in self._prompts:
            self._prompts[chosen] = prompt_with(tree, self.inner, self.source, self.hint(tree.task, chosen))
        return self._prompts[chosen]


def criteria_to_show(task: Task, *, allow_leaks: bool) -> list[Criterion]:
    """The task's criteria without those that state its answer."""
    return [
        criterion
        for criterion in rubric_of(task.columns)
        if allow_leaks or not criterion.get("leaks", leaks(task, criterion["criterion"]))
    ]


def share_shown(i: int, n: int, progress: float, *, start: float, steepness: float) -> float:
    """The share of the criteria that a sample is shown.

        (n - 1 - i) / (n - 1) * 1 / (1 + exp(steepness (progress - start)))        1 in place of the first where n = 1

    Args:
        i, n: the sample's index in its group of n, from 0.
        progress: share of the stage that is done, 0 .. 1.
        start, steepness: of the decay.
    Returns:
        In 0 .. 1, without unit.
    Source:
        RuscaRL, arXiv:2508.16949, section 3, and its code's rule ``step_sigmoid``.
    """
    within = 1.0 if n == 1 else (n - 1 - i) / (n - 1)
    return within / (1 + math.exp(min(700.0, steepness * (progress - start))))
