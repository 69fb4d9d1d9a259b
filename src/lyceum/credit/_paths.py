"""What tree credits share: which nodes each row passes, and broadcasting a node's value to its tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int

from lyceum.core.forest import Forest, Rows
from lyceum.core.keys import Keyed, begins_pass
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, CreditWithKL
from lyceum.utils.lazy_imports import Tensor, torch


@dataclass
class ForestCredit(BaseCredit):
    """A credit without state that reads more of a forest than its rows' rewards and groups.

    Attributes:
        credited: its advantages have the curriculum's weight in them.
    """

    needs: frozenset[str]
    credited: Callable[[Forest], Credited]

    def __call__(self, forest: Forest) -> Credited:
        return self.credited(forest)


class ForestCreditSettings(CreditWithKL):
    """Settings of a credit without state that compares a task's rows, and reads more of a forest than their rewards."""

    requires: ClassVar = ("company",)

    @abstractmethod
    def credited(self, forest: Forest) -> Credited: ...

    def build(self) -> Credit:
        return ForestCredit(self.needs, self.credited)


@dataclass(frozen=True)
class Passes:
    """Each row's passes through nodes, P of them, in order: segments that a judged step split are one pass again.

    Attributes:
        row: row of each pass, never decreasing.
        node: node that it passes.
        depth: nodes above it on the row; 0 is the prompt.
        of_segment: (S,) the pass that each of the forest's segments is part of.
    """

    row: Int[Tensor, " P"]
    node: Int[Tensor, " P"]
    depth: Int[Tensor, " P"]
    of_segment: Int[Tensor, " S"]


def passes_of(forest: Forest) -> Passes:
    row, node = forest.segment_row, forest.segment_node
    if not len(row):
        return Passes(row, node, row, row)
    new = begins_pass(forest)
    of_segment = new.long().cumsum(0) - 1
    row, node = row[new], node[new]
    first = torch.full((forest.n_rows,), len(row)).scatter_reduce(0, row, torch.arange(len(row)), "amin")
    return Passes(row, node, torch.arange(len(row)) - first[row], of_segment)


def lay_on_tokens(of_segment: Float[Tensor, " S"], forest: Forest, rows: Rows) -> Float[Tensor, "R L"]:
    """Each segment's value on all of its tokens; 0 past each row's end."""
    segments = Keyed(forest.segment_row, forest.segment_start, forest.segment_end, ())
    return segments.lay(of_segment, rows)
