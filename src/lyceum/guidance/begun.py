"""Rollouts that begin where somebody else left off: a task with a column ``begun`` is gone on with from there."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from lyceum.component import Component
from lyceum.guidance.base import AroundContext, Guide
from lyceum.tree import Node, Tree
from lyceum.types import Context, Guidance, Origin, Rollout, Sampling, Task, TaskSource

BEGUN = "begun"
"""Column with the tokens that a task's completions begin with."""


class Begun(Component, room="guidance"):
    """What a curriculum gives of a solution stands at the beginning of every completion, graded and not trained.

    Source: ReST-GRPO, arXiv:2508.19576, section 3.1, where it ends the prompt. ``curriculum: good-prefixes`` gives it.
    """

    kind: Literal["begun"] = "begun"

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return BegunGuide()


class BegunGuide(Guide):
    """It remembers nothing but the last step's figures."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def __call__(self, rollout: Rollout) -> Rollout:
        async def guided(task: Task, context: Context) -> Tree:
            given = task.columns.get(BEGUN)
            tree = await rollout(task, FromBeginning(context, given) if given else context)
            tree.record[BEGUN] = len(given or ())
            return tree

        return guided

    def observe(self, trees: Sequence[Tree]) -> None:
        given = [tree for tree in trees if tree.record[BEGUN]]
        self.seen = {"groups/begun": len(given)}
        if given:
            self.seen["tokens/given"] = fmean(tree.record[BEGUN] for tree in given)
            self.seen["correct/begun"] = fmean(tree.solved or 0.0 for tree in given)

    def figures(self) -> dict[str, float]:
        return self.seen


class FromBeginning(AroundContext):
    """A context in which what is drawn below a task's prompt stands below a given beginning instead."""

    def __init__(self, inner: Context, given: Sequence[int]) -> None:
        super().__init__(inner)
        self.given = list(given)

    def tree(self, task: Task) -> Tree:
        tree = super().tree(task)
        tree.root.add(self.given, Origin.HINT, self.decode(self.given))
        return tree

    async def extend(self, node: Node, n: int, sampling: Sampling | None = None, *, keep: bool = False) -> list[Node]:
        below = node.children[0] if self.tree_of(node) else node
        return await super().extend(below, n, sampling, keep=keep)
