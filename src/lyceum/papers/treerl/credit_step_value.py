"""Step values (TreeRL): a node's value is the mean outcome below it, and its tokens get the gain in value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int

from lyceum.core.forest import Forest, Rows
from lyceum.core.keys import Keyed, begins_pass
from lyceum.core.types import Credited
from lyceum.credit.base import ForestCreditSettings, by_group, group_centred, lay, row_reward
from lyceum.utils.lazy_imports import Tensor, torch


class StepValue(ForestCreditSettings):
    """The mean outcome below a node, against the tree's mean and against the node above."""

    kind: Literal["step-value"] = "step-value"
    against: Literal["both", "root", "parent"] = "both"
    """Baseline of a node's value: the tree's mean (global advantage), the node above (local advantage), or
    the sum of both differences, as in the paper."""
    leaves: Literal["sqrt", "count", "none"] = "sqrt"
    """Divisor of the difference: the square root of the node's number of leaves (as in the paper), that number, or
    none: a node is trained once for every leaf below it."""

    def credited(self, forest: Forest) -> Credited:
        rows, passes = forest.rows(), passes_of(forest)
        against_root, against_parent, leaves = step_advantages(
            row_reward(forest, rows, self.kl_in_reward), forest.group, passes.row, passes.node, passes.depth
        )
        advantage = {
            "both": against_root + against_parent,
            "root": against_root,
            "parent": against_parent,
        }[self.against]
        if self.leaves != "none":
            advantage = advantage / (leaves.sqrt() if self.leaves == "sqrt" else leaves)
        shared = {"nodes_shared": float(passes.node[(passes.depth > 0) & (leaves > 1)].unique().numel())}
        return Credited(lay(lay_on_tokens(advantage[passes.of_segment], forest, rows), forest, rows), metrics=shared)


def step_advantages(
    reward: Float[Tensor, " R"],
    group: Int[Tensor, " R"],
    row: Int[Tensor, " P"],
    node: Int[Tensor, " P"],
    depth: Int[Tensor, " P"],
) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"], Float[Tensor, " P"]]:
    """(global, local, leaves) of the node of each pass.

        V(n) = mean reward of the rows that pass n        V(root) = mean reward of the group
        global = V(n) - V(root)        local = V(n) - V(parent of n)        leaves = number of rows that pass n

    Args:
        reward: outcome of each row, in the verifier's unit.
        group: group of each row, numbered from 0; numbers may be missing.
        row, node, depth: each row's passes through nodes, in the order of rows and from the prompt down.
    Returns:
        Advantages in the unit of reward. Along a row the local ones sum to its reward minus its prompt's value. In a
        flat group both are reward - mean.
    Source:
        TreeRL, arXiv:2506.11902, section 3.3: R(n) = (global + local) / sqrt(leaves). Its code (THUDM/TreeRL) starts
        from leave-one-out rewards, which are K / (K - 1) times as large with K leaves, and divides both values by the
        roots of their own leaves before it subtracts them.
    """
    # The group's mean is subtracted first: equal rewards then give exactly 0 everywhere.
    centred = group_centred(reward, group)[row]
    leaves = by_group(torch.ones_like(centred), node, "sum")
    value = by_group(centred, node, "sum") / leaves
    above = value.roll(1)
    above[depth == 0] = 0
    return value, value - above, leaves


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
