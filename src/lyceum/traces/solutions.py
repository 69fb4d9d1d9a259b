"""Correct trajectories unchanged: the data of rejection sampling and expert iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TracesSettings
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Trace, Traces
from lyceum.traces.base import Decode
from lyceum.utils.seeds import counter_seed


class Solutions(TracesSettings):
    """Each tree's correct trajectories under the task's own prompt, each text once.

    A trajectory sampled under a hint counts if the rollout or a guide moved it below the task's own prompt.
    """

    kind: Literal["solutions"] = "solutions"
    per_task: int | None = Field(default=None, ge=1)
    """Maximum trajectories per task; null takes all."""
    choose: Literal["shortest", "random", "most-valued"] = "shortest"
    """Which of them, if there are more: those of fewest tokens, a random choice, or those of highest value in the
    rollout; ties go to the first in the tree."""

    def build(self) -> Traces:
        return self

    def __call__(self, trees: Sequence[Tree], decode: Decode) -> list[Trace]:
        return [trace for tree in trees for trace in self.of(tree, decode)]

    def of(self, tree: Tree, decode: Decode) -> list[Trace]:
        found: dict[tuple[int, ...], Node] = {}
        for leaf in tree.graded:
            if is_correct(leaf) and leaf.path()[0] is tree.root:
                found.setdefault(tuple(leaf.completion_tokens), leaf)
        ranked = sorted(found.items(), key=lambda item: self.rank(tree, *item))
        return [
            Trace(tree.task.id, tree.task.messages, decode(tokens), tokens)
            for tokens, _ in ranked[: self.per_task or len(ranked)]
        ]

    def rank(self, tree: Tree, tokens: tuple[int, ...], leaf: Node) -> float:
        match self.choose:
            case "shortest":
                return len(tokens)
            case "random":
                # Seeded by the tokens, not drawn from a stream: independent of what else the round found.
                return counter_seed("solutions", tree.task.id, *tokens)
            case "most-valued":
                return float("inf") if leaf.value is None else -leaf.value
