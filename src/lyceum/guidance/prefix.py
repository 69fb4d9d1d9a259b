"""Rollouts from a given prefix: every completion of a task with a ``prefix`` begins with it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar, Literal

from lyceum.core.settings import Composition, GuidanceSettings
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Guidance, Origin, Rollout, Sampling, Task, TaskSource
from lyceum.guidance.base import AroundContext, TaskGuide, piecewise_lines


class Begun(GuidanceSettings):
    """Each completion begins with the solution prefix that a curriculum gives, which is graded and not trained.

    Source: ReST-GRPO, arXiv:2508.19576, section 3.1, where it ends the prompt. ``curriculum: good-prefixes`` gives it.
    """

    formerly: ClassVar[tuple[str, ...]] = ("begun",)
    kind: Literal["prefix"] = "prefix"

    def check(self, stage: Composition) -> list[str]:
        return piecewise_lines(self.kind, stage, "whose beginnings its limits of tokens and depth would count twice")

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return BegunGuide()


class BegunGuide(TaskGuide):
    """Has no state: the prefix is in the task."""

    async def roll(self, rollout: Rollout, task: Task, context: Context) -> Tree:
        tree = await rollout(task, FromBeginning(context, task.prefix) if task.prefix else context)
        tree.metadata["prefix"] = len(task.prefix)
        return tree

    def observe(self, trees: Sequence[Tree]) -> None:
        given = [tree for tree in trees if tree.metadata.get("prefix")]
        metrics = {"groups/prefix": float(len(given))}
        if given:
            metrics["tokens/given"] = fmean(len(tree.task.prefix) for tree in given)
            metrics["correct/prefix"] = fmean(tree.solved or 0.0 for tree in given)
        self._metrics = metrics


class FromBeginning(AroundContext):
    """A context in which completions of a task's prompt are drawn below a given prefix instead."""

    def __init__(self, inner: Context, given: Sequence[int]) -> None:
        super().__init__(inner)
        self.given = list(given)

    def tree(self, task: Task) -> Tree:
        tree = super().tree(task)
        tree.root.add(self.given, Origin.HINT, self.decode(self.given))
        return tree

    async def extend(self, node: Node, n: int, sampling: Sampling | None = None, *, keep: bool = False) -> list[Node]:
        if not self.tree_of(node):
            return await super().extend(node, n, sampling, keep=keep)
        drawn = await super().extend(node.children[0], n, sampling, keep=keep)
        for child in drawn:  # decoded alone it may lack the space after the prefix
            write_texts([child], self.decode, terminal=True)
        return drawn
