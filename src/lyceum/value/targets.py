"""Training targets of a value model: values of unfinished paths from a finished tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Example
from lyceum.utils.numbers import mean

Targets = Literal["process", "mean-outcome"]


def examples_of(tree: Tree, targets: Targets) -> list[Example]:
    """The tree's paths under its own prompt with their values, each path once, in the order of the tree."""
    found: dict[tuple[int, ...], float] = {}
    for node, value in TARGETS[targets](tree).items():
        found.setdefault(tuple(node.path_tokens()), value)
    return [Example(list(path), value, len(tree.root.tokens)) for path, value in found.items()]


def process_values(tree: Tree) -> dict[Node, float]:
    """Value of each step, from its distance to a correct answer; empty where the tree has no correct answer.

        v_0 = 0 at the prompt,  v_k = max(v_{k-1} + w_k, 0),  w_k = (1 - v_{k-1}) / (m_k + 1) * (1 - 2 r_k)

    A step that leads to a correct answer has r_k = 0, and m_k steps are left from it to the nearest one. A step that
    does not has r_k = 1, and its m_k + 1 is that of the nearest step above it that does: m steps are left from there.
    Only steps on a path to a graded leaf have a value, since nothing is known about the others.

    Returns:
        Step -> v in 0 .. 1, exactly 1 at a correct leaf; the prompt itself is left out.
    Source:
        ReST-MCTS*, arXiv:2406.03816, equations 1 and 2, section 3.3; r_k and m_k below an incorrect step: the authors'
        code (MCTS/base.py, get_full_value_samples_vm).
    """
    left = _steps_left(tree)
    values: dict[Node, float] = {}
    if tree.root not in left:
        return values
    graded = _with_graded_end(tree.root)
    stack = [(tree.root, 0.0, left[tree.root])]
    while stack:
        node, value, distance = stack.pop()
        if node is not tree.root:
            values[node] = value
        for child in reversed(node.children):
            if child in left:
                stack.append((child, step_value(value, left[child] + 1, right=True), left[child]))
            elif child in graded:
                # Below an incorrect step the distance stays that of the last correct one, as if backtracking to it.
                stack.append((child, step_value(value, distance + 1, right=False), distance))
    return values


def step_value(above: float, steps: int, *, right: bool) -> float:
    """v_k = max(v_{k-1} + (1 - v_{k-1}) / (m_k + 1) * (1 - 2 r_k), 0).

    Args:
        above: v_{k-1}, in 0 .. 1.
        steps: m_k + 1: the steps left, this one counted.
        right: whether r_k is 0.
    Returns:
        v_k in 0 .. 1: 1 for the last correct step (m_k = 0), never more than above for an incorrect one.
    Source:
        ReST-MCTS*, arXiv:2406.03816, equations 1 and 2.
    """
    return max(above + (1 - above) / steps * (1 if right else -1), 0.0)


def mean_outcomes(tree: Tree) -> dict[Node, float]:
    """Value of each step: the mean outcome of the graded leaves below it, each leaf counted once, clipped to 0 .. 1.

    Source:
        ReST-RL, arXiv:2508.19576, section 3.2: an expanded state's mean reward and a completion's own.
    """
    values: dict[Node, float] = {}
    for node in tree.root.walk():
        outcomes = [end.grade.outcome for end in node.walk() if end.grade and end.grade.outcome is not None]
        if outcomes and node is not tree.root:
            values[node] = min(1.0, max(0.0, mean(outcomes)))
    return values


TARGETS: Mapping[Targets, Callable[[Tree], dict[Node, float]]] = {
    "process": process_values,
    "mean-outcome": mean_outcomes,
}


def _steps_left(tree: Tree) -> dict[Node, int]:
    """For each node that leads to a correct leaf: steps to the nearest one; 0 for a correct leaf itself."""
    left: dict[Node, int] = {}
    for node in tree.root.walk():
        at: Node | None = node if is_correct(node) else None
        steps = 0
        while at is not None and left.get(at, steps + 1) > steps:
            left[at] = steps
            at, steps = at.parent, steps + 1
    return left


def _with_graded_end(root: Node) -> set[Node]:
    """Nodes at or below which a trajectory was graded."""
    found: set[Node] = set()
    for node in root.walk():
        at: Node | None = node if node.grade is not None and node.grade.outcome is not None else None
        while at is not None and at not in found:
            found.add(at)
            at = at.parent
    return found


def explained_variance(predicted: Sequence[float], actual: Sequence[float]) -> float | None:
    """1 - Var(actual - predicted) / Var(actual); None where all actual values are equal."""
    spread = _variance(actual)
    return None if spread == 0 else 1 - _variance([a - p for a, p in zip(actual, predicted, strict=True)]) / spread


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return fmean((value - mean) ** 2 for value in values)
