"""Rollouts from a given prefix: every completion of a task with a ``prefix`` begins with it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar, Literal

from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Guidance, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, begun
from lyceum.papers.rest_rl.curriculum_good_prefixes import GivenPrefix


class Prefix(GuidanceSettings):
    """Each completion begins with the solution prefix that a curriculum gives, which is graded and not trained.

    Source: ReST-GRPO, arXiv:2508.19576, section 3.1, where it ends the prompt. ``curriculum: good-prefixes`` gives it.
    """

    formerly: ClassVar[tuple[str, ...]] = ("begun",)
    gives: ClassVar = ("prefixes",)

    kind: Literal["prefix"] = "prefix"

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return PrefixGuide()


class PrefixGuide(TaskGuide):
    """Has no state: the prefix is in the task."""

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        prefix = given_to(context.task)
        context.tree.record("prefix", len(prefix))
        return await rollout(context, begun(start, prefix, context) if prefix else start, n)

    def observe(self, trees: Sequence[Tree]) -> None:
        given = [tree for tree in trees if tree.metadata.get("prefix")]
        metrics = {"groups/prefix": float(len(given))}
        if given:
            metrics["tokens/given"] = fmean(len(given_to(tree.task)) for tree in given)
            metrics["correct/prefix"] = fmean(tree.solved or 0.0 for tree in given)
        self._metrics = metrics


def given_to(task: Task) -> tuple[int, ...]:
    """The tokens that completions of a task begin with; empty where they begin at its prompt."""
    note = task.note(GivenPrefix)
    return () if note is None else note.tokens
