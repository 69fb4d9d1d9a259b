import math
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_trees import letters
from tree_forests import forest_of, random_nested

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.papers.treerl.credit_step_value import StepValue

THREE_AND_ONE = [[1, 1, 0], 0]
"""V(root) = 1/2, V(inner) = 2/3 with 3 leaves."""


def advantages(forest, **settings):
    return StepValue(**settings).build()(forest).advantage


def test_a_nodes_tokens_get_what_it_is_worth_against_the_tree_and_against_the_node_above():
    forest = forest_of(THREE_AND_ONE)
    #                   prompt  inner        leaf
    root = torch.tensor([[0.0, 1 / 6, 1 / 2], [0, 1 / 6, 1 / 2], [0, 1 / 6, -1 / 2], [0, -1 / 2, 0]])
    parent = torch.tensor([[0.0, 1 / 6, 1 / 3], [0, 1 / 6, 1 / 3], [0, 1 / 6, -2 / 3], [0, -1 / 2, 0]])
    torch.testing.assert_close(advantages(forest, against="root", leaves="none"), root)
    torch.testing.assert_close(advantages(forest, against="parent", leaves="none"), parent)
    torch.testing.assert_close(advantages(forest, leaves="none"), root + parent)


def test_the_root_of_the_leaves_divides_as_in_the_paper():
    # The inner node is trained three times: (1/6 + 1/6) / sqrt(3) each, or / 3. Leaves stand for themselves.
    forest = forest_of(THREE_AND_ONE)
    by_root = torch.tensor([0.0, 1 / 3 / math.sqrt(3), 5 / 6])
    torch.testing.assert_close(advantages(forest)[0], by_root)
    torch.testing.assert_close(advantages(forest, leaves="count")[0], torch.tensor([0.0, 1 / 9, 5 / 6]))


def test_a_judged_step_cuts_no_node():
    # Two segments of one node are one pass: its leaves are not counted twice, its parent is not itself.
    root = Node(None, [1], Origin.PROMPT)
    judged = (JudgedStep(0, 1, 0.5), JudgedStep(1, 2, 0.5))
    for tokens, reward, steps in (([2, 3], 1.0, judged), ([4, 5], 0.0, ())):
        leaf = root.add_drawn(Continuation(tokens, [-1.0] * 2, [-1.0] * 2, [0] * 2, "stop"), letters(tokens))
        leaf.grade = Grade(reward, steps=steps)
    forest = build_forest([Tree(Task("t", ()), [root])], decode=letters)
    assert len(forest.segment_row) == 5
    expected = torch.tensor([[0.0, 0.5, 0.5], [0.0, -0.5, -0.5]])
    for against in ("root", "parent"):
        torch.testing.assert_close(advantages(forest, against=against), expected)


@pytest.mark.parametrize("leaves", ["sqrt", "count", "none"])
@given(st.integers(0, 10**6))
def test_on_flat_groups_each_difference_is_group_relative_without_the_deviation(leaves, seed):
    rng = Random(seed)
    forest = forest_of(*[[rng.choice((0, 1, 0.25)) for _ in range(rng.randint(1, 5))] for _ in range(2)])
    expected = GroupRelative(scale="none").build()(forest).advantage
    for against, times in (("root", 1), ("parent", 1), ("both", 2)):
        torch.testing.assert_close(advantages(forest, against=against, leaves=leaves), times * expected)


@given(st.integers(0, 10**6))
def test_gains_along_a_row_add_up_to_its_reward_less_the_mean_and_weigh_out_over_a_tree(seed):
    rng = Random(seed)
    forest = forest_of(*[random_nested(rng) for _ in range(2)])
    gains = advantages(forest, against="parent", leaves="none")
    centred = GroupRelative(scale="none").build()(forest).advantage
    torch.testing.assert_close(gains.sum(1), centred[:, 1], atol=1e-5, rtol=1e-5)
    # Each node's leaves lie about its value: local advantages of a tree's rows add up to 0 at every depth.
    for group in forest.group.unique():
        rows = forest.group == group
        torch.testing.assert_close(gains[rows].sum(), torch.zeros(()), atol=1e-5, rtol=0)


@given(st.integers(0, 10**6), st.floats(-100, 100, width=32))
def test_equal_rewards_give_exactly_zero(seed, reward):
    def with_reward(nested):
        return [with_reward(below) if isinstance(below, list) else reward for below in nested]

    forest = forest_of(with_reward(random_nested(Random(seed))))
    assert (advantages(forest) == 0).all()
