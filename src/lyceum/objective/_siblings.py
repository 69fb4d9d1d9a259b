"""Preference pairs of steps: siblings where a tree branches, by the mean outcome below each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from jaxtyping import Bool

from lyceum.core import keys
from lyceum.core.forest import Forest
from lyceum.utils.lazy_imports import Tensor


@dataclass(frozen=True)
class StepPair:
    """Two steps below one node.

    Attributes:
        chosen, rejected: (row, start, end) of each: positions [start, end) of a row that passes it.
        gap: mean outcome below the chosen one less that below the rejected one, in the reward's unit; above 0.
    """

    chosen: tuple[int, int, int]
    rejected: tuple[int, int, int]
    gap: float


def sibling_pairs(
    forest: Forest,
    mask: Bool[Tensor, "R L"],
    *,
    margin: float = 0.0,
    between: float | None = None,
    most: int | None = None,
) -> list[StepPair]:
    """Siblings whose values differ, those with the most rows first, as long as each has a row that no other pair has.

        V(n) = mean outcome of the rows that pass n        gap(a, b) = V(a) - V(b)

    As a and b are below one node, the gap is also the difference of their advantages. A value is the better known the
    more rows pass its node: a pair counts as many as the one of its nodes that has fewer.

    Args:
        mask: tokens that may be trained; siblings without any, or with the same ones, are no pair.
        margin: by how much their values differ at least, exclusive.
        between: lies strictly between their values; None: anywhere.
        most: maximum pairs per group; None for no limit.
    Returns:
        By group, most rows first; ties by the largest gap, then in the order of the rows. No row is in two of them.
    """
    of = keys.nodes(forest)
    reward, group, parent = forest.reward.tolist(), forest.group.tolist(), forest.node_parent.tolist()
    passes: dict[int, list[tuple[int, int, int]]] = {}
    for at, node in zip(zip(of.row.tolist(), of.start.tolist(), of.end.tolist(), strict=True), of.key, strict=True):
        assert isinstance(node, int)
        passes.setdefault(node, []).append(at)
    value = {node: sum(reward[row] for row, _, _ in found) / len(found) for node, found in passes.items()}
    tokens = {node: written(forest, mask, found[0]) for node, found in passes.items()}
    children: dict[int, list[int]] = {}
    for node in passes:
        children.setdefault(parent[node], []).append(node)

    def differing() -> Iterator[tuple[float, int, int]]:
        for siblings in children.values():
            for a, b in permutations(siblings, 2):
                apart = value[a] - value[b]
                apart_by = between is None or value[a] > between > value[b]
                if apart > margin and apart_by and tokens[a] and tokens[b] and tokens[a] != tokens[b]:
                    yield apart, a, b

    def order(found: tuple[float, int, int]) -> tuple[float, ...]:
        gap, a, b = found
        return (-min(len(passes[a]), len(passes[b])), -gap, *passes[a][0], *passes[b][0])

    pairs: dict[int, list[StepPair]] = {}
    taken: set[int] = set()
    for gap, a, b in sorted(differing(), key=order):
        chosen, rejected = (next((at for at in passes[node] if at[0] not in taken), None) for node in (a, b))
        if chosen is None or rejected is None:
            continue
        of_group = pairs.setdefault(group[chosen[0]], [])
        if most is None or len(of_group) < most:
            of_group.append(StepPair(chosen, rejected, gap))
            taken |= {chosen[0], rejected[0]}
    return [pair for number in sorted(pairs) for pair in pairs[number]]


def written(forest: Forest, mask: Bool[Tensor, "R L"], at: tuple[int, int, int]) -> list[int]:
    """The tokens of a step that may be trained."""
    row, start, end = at
    kept = forest.rows().index[row, start:end][mask[row, start:end]]
    return forest.token[kept].tolist()
