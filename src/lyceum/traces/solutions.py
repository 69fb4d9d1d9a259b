"""Right trajectories as they are: what rejection sampling and expert iteration fine-tune on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TracesSettings
from lyceum.core.tree import Node, Tree, is_right
from lyceum.core.types import Trace, Traces
from lyceum.traces.base import Decode
from lyceum.utils.seeds import counter_seed


class Solutions(TracesSettings):
    """Of each tree its right trajectories under the task's own prompt, each text once.

    What was written under a hint counts where the rollout or a guide put it below the task's own prompt.
    """

    kind: Literal["solutions"] = "solutions"
    per_task: int | None = Field(default=None, ge=1)
    """Most trajectories of a task; null takes all."""
    choose: Literal["shortest", "random", "most-valued"] = "shortest"
    """Which of them, where there are more: those of fewest tokens, a draw, or those whose ends the rollout found to be
    worth most; of equals those that stand first in the tree."""

    def build(self) -> Traces:
        return self

    def __call__(self, trees: Sequence[Tree], decode: Decode) -> list[Trace]:
        return [trace for tree in trees for trace in self.of(tree, decode)]

    def of(self, tree: Tree, decode: Decode) -> list[Trace]:
        found: dict[tuple[int, ...], Node] = {}
        for leaf in tree.graded:
            if is_right(leaf) and leaf.path()[0] is tree.root:
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
                # By what was drawn and not by a stream: the same whatever else the round found.
                return counter_seed("solutions", tree.task.id, *tokens)
            case "most-valued":
                return float("inf") if leaf.value is None else -leaf.value
