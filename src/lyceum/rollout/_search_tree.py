"""Node statistics of a Monte Carlo tree search, and the mathematics of selection and backup.

Source: DeepSearch, arXiv:2509.25454, section 3, and its released code (deepsearch/utils/mcts.py), which takes
precedence where the two differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from lyceum.core.tree import Node
from lyceum.core.types import Grade

DepthBonus = Literal["sqrt", "log", "linear"]
Negative = Literal["most-confident", "least-confident", "random"]

RIGHT, WRONG, INCOMPLETE = 2, 1, 0
"""Rank of an expansion's terminals; higher ranks are chosen first."""


@dataclass(eq=False)
class SearchNode:
    """A node of the tree as the search sees it.

    Attributes:
        node: its tokens.
        above: the node above; None for the prompt.
        visits: backups that passed it, plus one at creation if it is not terminal.
        born: the visit at creation: 1 or 0.
        q: accumulated value, in units where a correct answer is 1.
        children_drawn: how many children were drawn for it; at ``width`` it is fully expanded.
        terminal: whether its trajectory is over.
        outcome: 1 correct, -1 incorrect, or the value of an incomplete one; None if not (yet) graded.
        order: RIGHT, WRONG or INCOMPLETE.
        backed_up: whether it is one of the tree's trajectories.
        exhausted: nothing more can be drawn below it.
        waiting: terminals drawn from here that are not backed up.
        drawn: the steps drawn from here, as tokens.
    """

    node: Node
    above: SearchNode | None = None
    depth: int = 0
    children: list[SearchNode] = field(default_factory=list)
    visits: int = 0
    born: int = 0
    q: float = 0.0
    children_drawn: int = 0
    terminal: bool = False
    outcome: float | None = None
    order: int = WRONG
    backed_up: bool = False
    exhausted: bool = False
    waiting: list[SearchNode] = field(default_factory=list)
    drawn: set[tuple[int, ...]] = field(default_factory=set)

    @property
    def mean(self) -> float:
        """Q = q / N; 0 before the first visit."""
        return self.q / self.visits if self.visits else 0.0

    @property
    def surprise(self) -> float:
        """Mean of -log p over the node's own tokens, in nats: an estimate of the policy's entropy there."""
        return mean_surprise([self.node])

    def add(self, node: Node, *, terminal: bool = False) -> SearchNode:
        child = SearchNode(node, self, self.depth + 1, terminal=terminal, exhausted=terminal)
        self.children.append(child)
        return child

    def path(self) -> list[SearchNode]:
        """From the prompt down to this node."""
        found: list[SearchNode] = [self]
        while found[-1].above is not None:
            found.append(found[-1].above)
        return found[::-1]

    def walk(self) -> Iterator[SearchNode]:
        stack: list[SearchNode] = [self]
        while stack:
            place = stack.pop()
            yield place
            stack += reversed(place.children)

    def arrive(self) -> None:
        """Count one visit of value 0 when a non-terminal node is created; its ancestors' counts do not change."""
        self.visits += 1
        self.born += 1

    def close(self, width: int) -> None:
        """Mark this node and its ancestors exhausted where nothing more can be drawn."""
        place: SearchNode | None = self
        while place is not None and place.children_drawn >= width and all(child.exhausted for child in place.children):
            place.exhausted = True
            place = place.above


def mean_surprise(nodes: Sequence[Node]) -> float:
    """H = mean_t -log p(y_t) over all tokens of these nodes, in nats, of the untempered model; 0 without tokens.

    Source:
        DeepSearch, arXiv:2509.25454, section 3.1; the code estimates the entropy by the drawn tokens alone.
    """
    logprob = [value for node in nodes for value in node.model_logprob]
    return -fmean(logprob) if logprob else 0.0


def uct(mean: float, visits: int, visits_above: int, exploration: float) -> float:
    """UCT(s) = Q(s) + exploration * sqrt(ln N(parent) / N(s)); only Q(s) if either has no visits.

    Args:
        mean: Q(s), in units where a correct answer is 1.
        exploration: lambda, in the same unit.
    Source:
        DeepSearch, arXiv:2509.25454, section 3.3 (lambda 2).
    """
    if not visits or not visits_above:
        return mean
    return mean + exploration * math.sqrt(math.log(visits_above) / visits)


def frontier_score(
    mean_above: float,
    surprise: float,
    depth: int,
    deepest: int,
    *,
    quality: float = 0.4,
    uncertainty: float = 0.0,
    depth_weight: float = 0.01,
    bonus: DepthBonus = "sqrt",
) -> float:
    """Priority of expanding a node, comparable across the whole tree.

        F(s) = quality * tanh(Q(parent)) + uncertainty * H(s) + depth_weight * D(d)
        D(d) = sqrt(d / deepest), ln(d + 1) or d

    Args:
        mean_above: Q of the parent, in units where a correct answer is 1.
        surprise: H(s), mean -log p of the node's tokens, in nats.
        depth: d, in nodes below the prompt.
        deepest: limit of d.
        quality, uncertainty, depth_weight: weights of the three terms, in the score's unit.
    Source:
        DeepSearch, arXiv:2509.25454, equations 6 and 7, table 3. The code leaves the uncertainty out by default
        (0.4 when switched on).
    """
    further = {"sqrt": math.sqrt(depth / deepest), "log": math.log(depth + 1), "linear": float(depth)}[bonus]
    return quality * math.tanh(mean_above) + uncertainty * surprise + depth_weight * further


def decay(depth: int, leaf_depth: int, least: float = 0.1) -> float:
    """g = max((d + 1) / (d_leaf + 1), least): a terminal counts fully for itself, and less for higher ancestors.

    Source:
        Released code (update); the paper's equation 5 has i / l.
    """
    return max((depth + 1) / (leaf_depth + 1), least)


def backed_up(q: float, outcome: float, weight: float) -> float:
    """A node's accumulated value after a terminal below it.

        q + g z     where q z >= 0
        g z         where q < 0 < z: a path to a correct answer forgets the failures
        q           where z < 0 < q: a failure takes nothing from a node that led to a correct answer

    Args:
        q: the value before, in units where a correct answer is 1.
        outcome: z, in -1 .. 1.
        weight: g, the decay.
    Source:
        DeepSearch, arXiv:2509.25454, equations 3 to 5.
    """
    if q * outcome >= 0:
        return q + weight * outcome
    return weight * outcome if outcome > 0 else q


def back_up(leaf: SearchNode, *, least: float = 0.1) -> None:
    """Visit every node from a graded terminal up to the prompt."""
    assert leaf.outcome is not None
    for place in leaf.path():
        place.visits += 1
        place.q = backed_up(place.q, leaf.outcome, decay(place.depth, leaf.depth, least))
    leaf.backed_up = True


def judge(grade: Grade, *, complete: bool, incomplete: float) -> tuple[float, int] | None:
    """(outcome, order) of a terminal; None if it could not be graded.

    A truncated one without an answer is incomplete; with an answer it is correct or incorrect.

    Args:
        grade: ``answered`` None is treated as no answer.
        complete: False if the limit on tokens or depth truncated it.
        incomplete: outcome of a truncated one without an answer.
    Source:
        DeepSearch's released code (backup_and_selection), where incomplete means no end of sequence at the last depth
        and no answer that can be parsed.
    """
    if grade.outcome is None:
        return None
    right = grade.outcome > 0 if grade.verdict is None else grade.verdict
    if right:
        return 1.0, RIGHT
    if complete or grade.answered:
        return -1.0, WRONG
    return incomplete, INCOMPLETE


def choose_terminal(found: Sequence[SearchNode], negative: Negative, draw: Callable[[int], int]) -> SearchNode | None:
    """The graded terminal of an expansion that is backed up and trained on; None if none is graded.

    Correct ones come before incorrect ones, and these before incomplete ones; ties go to the one of which the policy
    was most confident: the lowest mean -log p over its whole trajectory.

    Args:
        negative: which one to take if none is correct: ``least-confident`` and ``random`` are the paper's ablations.
        draw: n -> a number in 0 .. n - 1, for ``random``.
    Source:
        DeepSearch, arXiv:2509.25454, section 3.1, table 5; the order and one terminal per expansion: released code
        (backup_and_selection).
    """
    graded = [leaf for leaf in found if leaf.outcome is not None]
    if not graded:
        return None
    first = max(leaf.order for leaf in graded)
    of_class = [leaf for leaf in graded if leaf.order == first]
    if first != RIGHT and negative == "random":
        return of_class[draw(len(of_class))]
    confidence = [-mean_surprise([place.node for place in leaf.path()[1:]]) for leaf in of_class]
    best = min(confidence) if first != RIGHT and negative == "least-confident" else max(confidence)
    return of_class[confidence.index(best)]


def best_child(place: SearchNode, exploration: float) -> SearchNode | None:
    """The child with the highest UCT among those that are not exhausted; ties go to the first."""
    open_ones = [child for child in place.children if not child.exhausted]
    if not open_ones:
        return None
    return max(open_ones, key=lambda child: uct(child.mean, child.visits, place.visits, exploration))


def descend(place: SearchNode, width: int, exploration: float) -> SearchNode | None:
    """Descend by UCT to a node that is not fully expanded, or that has terminals waiting to be backed up."""
    at: SearchNode | None = place
    while at is not None and at.children_drawn >= width and not at.waiting:
        at = best_child(at, exploration)
    return at if at is None or not at.terminal else None


def frontier(root: SearchNode, width: int) -> list[SearchNode]:
    """Nodes below the prompt that are neither terminal nor fully expanded, in tree order."""
    return [place for place in root.walk() if place.above and not place.terminal and place.children_drawn < width]
