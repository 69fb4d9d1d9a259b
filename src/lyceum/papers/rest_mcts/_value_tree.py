"""Step statistics of a search guided by a value model, and the mathematics of selection and backup.

Source: ReST-MCTS*, arXiv:2406.03816, and ReST-RL, arXiv:2508.19576, with their released code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lyceum.core.tree import Node


@dataclass(eq=False)
class ValuedStep:
    """A step as the search sees it.

    Attributes:
        node: its tokens.
        above: the step above; None for the prompt.
        depth: steps from the prompt to it, itself included.
        value: V, in 0 .. 1.
        visits: N: times it was selected, expanded through or re-evaluated.
        total: sum of backed-up values, where V is their mean.
        terminal: whether the trajectory is over here.
        hidden: pruned: it may not be expanded.
    """

    node: Node
    above: ValuedStep | None = None
    depth: int = 0
    value: float = 0.0
    visits: int = 0
    total: float = 0.0
    terminal: bool = False
    hidden: bool = False
    children: list[ValuedStep] = field(default_factory=list)

    def add(self, node: Node, *, terminal: bool) -> ValuedStep:
        self.children.append(ValuedStep(node, self, self.depth + 1, terminal=terminal))
        return self.children[-1]

    def walk(self) -> list[ValuedStep]:
        return [self, *(place for child in self.children for place in child.walk())]


def ucb(value: float, visits: int, visits_above: int, exploration: float, *, unvisited: float = 1.0) -> float:
    """V + c sqrt(2 ln N / n), or V + unvisited where n is 0.

    Source:
        ReST-MCTS*, arXiv:2406.03816, released code (MCTS/mcts.py, getBestChild).
    """
    if not visits:
        return value + unvisited
    return value + exploration * math.sqrt(2 * math.log(visits_above) / visits)


def smoothed_uct(value: float, visits: int, visits_above: int, exploration: float, smoothing: float = 0.1) -> float:
    """V + c sqrt((1 + ln N) / (n + smoothing)); only V if N is 0.

    Source:
        ReST-RL, arXiv:2508.19576, released code (algorithms/MCTS/mcts.py, UCT).
    """
    if not visits_above:
        return value
    return value + exploration * math.sqrt((1 + math.log(visits_above)) / (smoothing + visits))


def back_up_children(place: ValuedStep | None) -> None:
    """V <- sum_i n_i V_i / sum_i n_i over the children, from a node up to the prompt; each is visited once more.

    A node without visited children keeps its value.

    Source:
        ReST-MCTS*, arXiv:2406.03816, section 3.2 (backpropagation).
    """
    while place is not None:
        place.visits += 1
        visits = sum(child.visits for child in place.children)
        if visits:
            place.value = sum(child.visits * child.value for child in place.children) / visits
        place = place.above


def back_up_sum(place: ValuedStep | None, visits: int, total: float) -> None:
    """V <- (sum of backed-up values) / (their number), from a node up to the prompt.

    Args:
        visits: number of new values below the node.
        total: their sum.
    Source:
        ReST-RL, arXiv:2508.19576, released code (algorithms/MCTS/mcts.py, back_propagate).
    """
    while place is not None:
        place.visits, place.total = place.visits + visits, place.total + total
        if place.visits:
            place.value = place.total / place.visits
        place = place.above


def hide(children: Sequence[ValuedStep], keep: int | None) -> None:
    """Hide all but the ``keep`` children of highest value; ties go to the first."""
    ranked = sorted(children, key=lambda child: -child.value)
    for child in ranked[keep if keep is not None else len(ranked) :]:
        child.hidden = True


def outcomes(ends: Sequence[Node]) -> tuple[int, float]:
    """Number of finished paths with an outcome, and the sum of the outcomes, each clipped to 0 .. 1."""
    found = [end.grade.outcome for end in ends if end.grade is not None and end.grade.outcome is not None]
    return len(found), sum(min(1.0, max(0.0, outcome)) for outcome in found)


def move(node: Node, above: Node) -> None:
    """Move what was drawn below one step to another step with the same tokens."""
    same = node.parent
    assert same is not None
    same.detach()
    node.move(above)
