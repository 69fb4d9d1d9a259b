"""Correct trajectories: the data of rejection sampling and expert iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from lyceum.core.settings import TracesSettings
from lyceum.core.spans import Decode
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Trace, Traces
from lyceum.utils.numbers import mean
from lyceum.utils.seeds import counter_seed


class SolvedLeaf(NamedTuple):
    trace: Trace
    leaf: Node


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
    surprise: tuple[float, float] | None = None
    """Lowest and highest quantile of the steps that are imitated (0 to 1), by how unlikely they were when they were
    sampled (nats per token), among all of the round's traces: easy and far-fetched ones are only context. A step is a
    node of the tree; a trajectory of which no step is left is left out. null imitates all.
    Source: BFS-Prover-V2, arXiv:2509.06493 (tactics of low and of high perplexity are filtered out)."""

    @field_validator("surprise")
    @classmethod
    def _in_order(cls, surprise: tuple[float, float] | None) -> tuple[float, float] | None:
        if surprise is not None and not 0 <= surprise[0] < surprise[1] <= 1:
            raise ValueError(f"got {list(surprise)}; allowed: two quantiles from 0 to 1, the lower one first, or null")
        return surprise

    def build(self) -> Traces:
        return self

    def __call__(self, trees: Sequence[Tree], decode: Decode) -> list[Trace]:
        found = [each for tree in trees for each in self.of(tree, decode)]
        if self.surprise is None or not found:
            return [each.trace for each in found]
        steps = [steps_of(each.leaf) for each in found]
        surprises = [[surprise(step) for step in of] for of in steps]
        low, high = np.quantile([nats for of in surprises for nats in of], self.surprise)
        kept = [[low <= nats <= high for nats in of] for of in surprises]
        with_context = zip(found, steps, kept, strict=True)
        return [replace(each.trace, given=given(of, stays)) for each, of, stays in with_context if any(stays)]

    def of(self, tree: Tree, decode: Decode) -> list[SolvedLeaf]:
        found: dict[tuple[int, ...], Node] = {}
        for leaf in tree.graded:
            if is_correct(leaf) and leaf.path()[0] is tree.root:
                found.setdefault(tuple(leaf.completion_tokens), leaf)
        ranked = sorted(found.items(), key=lambda item: self.rank(tree, *item))
        return [
            SolvedLeaf(Trace(tree.task.id, tree.task.messages, decode(tokens), tokens), leaf)
            for tokens, leaf in ranked[: self.per_task or len(ranked)]
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


def steps_of(leaf: Node) -> list[Node]:
    """The nodes of a completion that have tokens."""
    return [node for node in leaf.written if node.tokens]


def surprise(step: Node) -> float:
    """Mean negative log-probability of a step's tokens under the model that sampled it, in nats; 0 where another author
    wrote it."""
    return -mean(step.model_logprob) if step.model_logprob else 0.0


def given(steps: Sequence[Node], kept: Sequence[bool]) -> tuple[tuple[int, int], ...]:
    """Where the steps that are not kept stand among the tokens of all."""
    ends = list(accumulate(len(step.tokens) for step in steps))
    starts = [0, *ends]
    return tuple((start, end) for start, end, is_kept in zip(starts, ends, kept, strict=False) if not is_kept)
