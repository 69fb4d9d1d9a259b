"""Keys: which rows of a forest, or which parts of its rows, are compared with each other.

A key is a pure function of the forest. Rows that carry the same key are compared as wholes: by default those of one
tree (``Forest.group``). Parts of rows are compared where the same node, step or state is in several of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int

from lyceum.core.forest import Forest, Rows
from lyceum.utils.lazy_imports import Tensor, torch

Span = tuple[int, int]
"""Positions [start, end) of a row."""

Word = tuple[int, ...]
"""The tokens of a step."""

StepKey = Callable[[Sequence[Word], int], Hashable]
"""(the steps of a row, which of them) -> the key of that step."""


@dataclass(frozen=True)
class Keyed:
    """Parts of a forest's rows, U of them, in the order of the rows; parts with equal keys are compared.

    Attributes:
        row: row of each part, never decreasing.
        start, end: positions [start, end) of the row.
        key: of each part; equal keys are of one group.
    """

    row: Int[Tensor, " U"]
    start: Int[Tensor, " U"]
    end: Int[Tensor, " U"]
    key: Sequence[Hashable]

    @property
    def number(self) -> Int[Tensor, " U"]:
        """The keys, numbered from 0 in the order in which they first appear."""
        number: dict[Hashable, int] = {}
        return torch.tensor([number.setdefault(key, len(number)) for key in self.key], dtype=torch.long)

    def lay(self, value: Float[Tensor, " U"], rows: Rows) -> Float[Tensor, "R L"]:
        """Each part's value on all of its tokens; 0 elsewhere."""
        length = self.end - self.start
        row = self.row.repeat_interleave(length)
        before = (length.cumsum(0) - length).repeat_interleave(length)
        place = self.start.repeat_interleave(length) + torch.arange(len(row)) - before
        laid = value.new_zeros(rows.index.shape)
        laid[row, place] = value.repeat_interleave(length)
        return laid


def row_tokens(forest: Forest) -> list[list[int]]:
    rows = forest.rows()
    return [row[:length] for row, length in zip(rows.gather(forest.token).tolist(), forest.row_length, strict=True)]


def prompts(forest: Forest) -> list[Word]:
    """The tokens of each row's prompt: a key that is the same in every step."""
    is_prompt = forest.node_parent[forest.segment_node] == Forest.ROOT
    end = torch.zeros(forest.n_rows, dtype=torch.long)
    end = end.scatter_reduce(0, forest.segment_row[is_prompt], forest.segment_end[is_prompt], "amax")
    return [tuple(row[:stop]) for row, stop in zip(row_tokens(forest), end.tolist(), strict=True)]


def begins_pass(forest: Forest) -> Bool[Tensor, " S"]:
    """Segments with which a row's pass through a node begins: a judged step within a node splits the pass."""
    row, node = forest.segment_row, forest.segment_node
    begins = torch.ones(len(row), dtype=torch.bool)
    begins[1:] = (row[1:] != row[:-1]) | (node[1:] != node[:-1])
    return begins


def passes(forest: Forest) -> Keyed:
    """Each row's passes through nodes, by node."""
    row, node = forest.segment_row, forest.segment_node
    first = begins_pass(forest).nonzero().squeeze(1)
    last = torch.cat([first[1:], torch.tensor([len(row)])]) - 1 if len(first) else first
    return Keyed(row[first], forest.segment_start[first], forest.segment_end[last], node[first].tolist())


def nodes(forest: Forest) -> Keyed:
    """Each row's passes through nodes below its prompt, by node: rows that share a beginning."""
    of = passes(forest)
    node = torch.tensor(of.key, dtype=torch.long)
    below = forest.node_parent[node] != Forest.ROOT
    return Keyed(of.row[below], of.start[below], of.end[below], node[below].tolist())


def judged_steps(forest: Forest) -> tuple[Keyed, Float[Tensor, " U"]]:
    """The segments that a grader judged, and what it gave them."""
    judged = (~forest.segment_reward.isnan() & (forest.segment_end > forest.segment_start)).nonzero().squeeze(1)
    row, start, end = forest.segment_row[judged], forest.segment_start[judged], forest.segment_end[judged]
    return Keyed(row, start, end, range(len(judged))), forest.segment_reward[judged]


def steps(forest: Forest, spans: Sequence[Sequence[Span]], key: StepKey) -> Keyed:
    """The steps of each row, by a key of their tokens within the row's group.

    Args:
        spans: each row's steps, in order.
    """
    keys: list[Hashable] = []
    for tokens, group, own in zip(row_tokens(forest), forest.group.tolist(), spans, strict=True):
        words = [tuple(tokens[start:end]) for start, end in own]
        keys += [(group, key(words, at)) for at in range(len(words))]
    return keyed(spans, keys)


def keyed(spans: Sequence[Sequence[Span]], keys: Sequence[Hashable]) -> Keyed:
    """The steps of each row, by a key of each."""

    def column(values: Iterable[int]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.long)

    return Keyed(
        column(row for row, own in enumerate(spans) for _ in own),
        column(start for own in spans for start, _ in own),
        column(end for own in spans for _, end in own),
        keys,
    )


def before(words: Sequence[Word], at: int, history: int | None) -> tuple[Word, ...]:
    """The steps just before one; fewer at the beginning. ``history``: how many; None for all."""
    return tuple(words[max(0, at - (at if history is None else history)) : at])
