"""Criteria of a good answer in the prompt, fewer from sample to sample and from step to step (RuscaRL)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.sources import checked_tasks, source_of, sources_of
from lyceum.core.tree import Node, Tree, graft
from lyceum.core.types import Context, Hint, Rollout, Task, TaskSource
from lyceum.guidance.base import CHECKED, TaskGuide, leaks, notes_of, start_with
from lyceum.reward.criteria import Criterion, rubric_of
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError


@dataclass(frozen=True)
class RubricNote(Note):
    """Number of criteria that a task can show, and the number that each sample was shown."""

    kind: ClassVar[str] = "rubric-scaffold"
    criteria: int
    shown: Sequence[int] = ()


class RubricScaffold(GuidanceSettings):
    """Show each sample of a group a different share of the task's rubric: the first all of it, the last nothing.

    Source: RuscaRL, arXiv:2508.16949, section 3 (intra-group differentiation, inter-step decay), and its released code,
    which trains every sample under the task's own prompt. Samples are drawn under the criteria that they were shown.
    """

    requires: ClassVar = ("trajectories",)

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

    def check_tasks(self, source: TaskSource) -> None:
        key = "guidance.rubric-scaffold"
        if not any(criteria_to_show(source[i], allow_leaks=self.allow_leaks) for i in checked_tasks(source, CHECKED)):
            raise RecipeError(
                f"{key}: none of the tasks has criteria to show; allowed: tasks with a rubric (tasks.columns.rubric of "
                "a dataset) that does not only say the answer"
            )
        if self.order == "random" and any(isinstance(one, WordsRubrics) for one in sources_of(source)):
            raise RecipeError(
                f"{key}.order: got 'random', but a prompt of these tasks shows criteria from the first on; "
                "allowed: listed"
            )


@runtime_checkable
class WordsRubrics(Protocol):
    """A task source that words a rubric's first criteria in its own form."""

    def rubric_hint(self, task: Task, criteria: Sequence[Criterion]) -> Hint:
        """As many criteria of the task as are given, from the first on."""
        ...


def rubric_hint(source: TaskSource, task: Task, criteria: Sequence[Criterion]) -> Hint:
    """Criteria of the task as a hint: in its source's own form, or as a list."""
    own, of = source_of(source, task)
    return own.rubric_hint(of, criteria) if isinstance(own, WordsRubrics) else listed(criteria)


class RubricScaffoldGuide(TaskGuide):
    """Has no state: what is shown depends on the sample's index and the stage's progress."""

    def __init__(self, settings: RubricScaffold, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        criteria = criteria_to_show(context.task, allow_leaks=self.settings.allow_leaks)
        if not criteria or n is None:
            context.tree.add_note(RubricNote(0))
            return await rollout(context, start, n)
        shown = [self.choose(i, n, len(criteria), context) for i in range(n)]
        starts = {chosen: self.start(context, start, criteria, chosen) for chosen in shown}
        together = Counter(starts[chosen] for chosen in shown)
        share = context.budget_left // n
        drawn = await gather(
            rollout(context.share(share * size), hinted, size) for (_, hinted), size in together.items()
        )
        leaves: list[Node] = []
        for (count, _), found in zip(together, drawn, strict=True):
            if count and self.settings.treatment == "unhinted":
                found = [graft(leaf, start) for leaf in found]
            for leaf in found:
                leaf.stats["criteria"] = count
            leaves += found
        context.tree.add_note(RubricNote(len(criteria), [starts[chosen][0] for chosen in shown]))
        return leaves

    def choose(self, i: int, n: int, criteria: int, context: Context) -> tuple[int, ...]:
        """Indices of the criteria that sample ``i`` of ``n`` is shown."""
        settings = self.settings
        share = share_shown(i, n, context.progress, start=settings.start, steepness=settings.steepness)
        count = round(share * criteria)
        if settings.order == "listed":
            return tuple(range(count))
        return tuple(sorted(random.Random(context.seed("rubric", i)).sample(range(criteria), count)))

    def start(
        self, context: Context, start: Node, criteria: Sequence[Criterion], chosen: tuple[int, ...]
    ) -> tuple[int, Node]:
        """(criteria shown, start with them in its prompt): the chosen ones, or as many as fit in the context."""
        while chosen:
            hint = rubric_hint(self.source, context.task, [criteria[number] for number in chosen])
            hinted = start_with(hint, context, self.source, start)
            if hinted is not None:
                return len(chosen), hinted
            chosen = chosen[:-1]
        return 0, start

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


def criteria_to_show(task: Task, *, allow_leaks: bool) -> list[Criterion]:
    """The task's criteria without those that state its answer."""
    return [
        criterion
        for criterion in rubric_of(task.columns)
        if allow_leaks or not criterion.get("leaks", leaks(task, criterion["criterion"]))
    ]


def listed(criteria: Sequence[Criterion]) -> Hint:
    """Criteria as a hint: a list of what earns points, and one of what loses points."""
    wanted = [f"- {one['criterion']} ({one['points']:g} points)" for one in criteria if one["points"] >= 0]
    unwanted = [f"- {one['criterion']} ({-one['points']:g} points off)" for one in criteria if one["points"] < 0]
    lines = ["A good answer:", *wanted] if wanted else []
    lines += ["What to avoid:", *unwanted] if unwanted else []
    return Hint("rubric", "\n".join(lines))


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
