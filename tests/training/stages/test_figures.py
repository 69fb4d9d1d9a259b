"""What the curriculum is told of a step's advantages."""

import pytest
import torch

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Credited, Grade, Origin, Task
from lyceum.training.stages._metrics import mean_abs_advantage


def tree_of(*lengths, origin=Origin.POLICY):
    """A rollout of each length below a prompt of one token."""
    root = Node(None, [1], Origin.PROMPT)
    for number, n in enumerate(lengths, start=2):
        leaf = root.add_drawn(Continuation([number] * n, [-1.0] * n, [-1.0] * n, [0] * n, "stop"))
        leaf.grade, leaf.origin = Grade(1.0), origin
    return Tree(Task("t", ()), [root])


def payoff(trees, *advantage):
    credited = Credited(torch.tensor(advantage))
    return mean_abs_advantage(build_forest(trees), credited, len(trees))


def test_a_long_rollout_counts_no_more_than_a_short_one():
    # One token at 1.0, three at -0.2: rollouts of 1.0 and 0.2, on average 0.6. Over all four tokens it would be 0.4.
    assert payoff([tree_of(1, 3)], [0, 1.0, 0, 0], [0, -0.2, -0.2, -0.2]) == [pytest.approx(0.6)]


def test_within_a_rollout_every_token_counts_the_same():
    # (0.5 + 0.1) / 2 = 0.3 and 0.9: 0.6.
    assert payoff([tree_of(2, 1)], [0, 0.5, -0.1], [0, 0.9, 0]) == [pytest.approx(0.6)]


def test_trees_are_apart_and_one_without_rows_has_nothing():
    trees = [tree_of(1), tree_of(), tree_of(2)]
    assert payoff(trees, [0, 0.5, 0], [0, 0.2, 0.4]) == pytest.approx([0.5, 0, 0.3])
    assert mean_abs_advantage(build_forest(trees), None, 3) == [0, 0, 0]


def test_what_a_teacher_wrote_is_no_rollout():
    # A teacher's row beside the policy's: counting it would halve the policy's 0.5.
    mixed = tree_of(1, 1)
    mixed.root.children[1].origin = Origin.TEACHER
    assert payoff([mixed], [0, 0.5], [0, 0.9]) == [0.5]
    assert payoff([tree_of(1, origin=Origin.TEACHER)], [0, 0.9]) == [0]
