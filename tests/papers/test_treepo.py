from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tree_forests import forest_of, random_nested

from lyceum.core.settings import Composition
from lyceum.credit.base import whiten
from lyceum.credit.group import GroupRelative
from lyceum.papers.treepo.credit_sub_group import SubGroup
from lyceum.rollout.flat import Flat

# Three leaves below one node, and one beside it: mean 1/2 at the root, 2/3 below the node.
THREE_AND_ONE = [[1, 1, 0], 0]


def of_rows(forest, **settings):
    """The one advantage of each row's trained tokens."""
    advantage = SubGroup(whiten=False, **settings).build()(forest).advantage
    return torch.stack(
        [row[row != 0].unique().squeeze() if (row != 0).any() else row.new_zeros(()) for row in advantage]
    )


def test_a_trajectory_is_compared_at_every_depth_with_those_that_share_its_beginning():
    # Depth 0: 1/2 1/2 -1/2 -1/2; depth 1: 1/3 1/3 -2/3, and the lone leaf has no company there.
    # Dividing the lone one by two depths as well would give it -1/4.
    torch.testing.assert_close(of_rows(forest_of(THREE_AND_ONE)), torch.tensor([5 / 12, 5 / 12, -7 / 12, -1 / 2]))


def test_depths_may_count_by_their_groups_size():
    # (4 * 1/2 + 3 * 1/3) / 7 and (4 * -1/2 + 3 * -2/3) / 7
    expected = torch.tensor([3 / 7, 3 / 7, -4 / 7, -1 / 2])
    torch.testing.assert_close(of_rows(forest_of(THREE_AND_ONE), weight="size"), expected)


def test_sub_groups_whose_rewards_are_equal_may_be_left_out():
    # Below the node both are 1: a difference of 0, which halves theirs, or does not count.
    forest = forest_of([[1, 1], 0, 0])
    torch.testing.assert_close(of_rows(forest), torch.tensor([0.25, 0.25, -0.5, -0.5]))
    torch.testing.assert_close(of_rows(forest, equal_sub_groups="skip"), torch.tensor([0.5, 0.5, -0.5, -0.5]))


def test_every_depth_counts_that_two_trajectories_share():
    # A run of two nodes before the fork: depths 1 and 2 are the same group of two, and both count, as in the authors'
    # code: (1/2 + 0 ...): rewards 1, 0 | 0: root 2/3 -1/3 -1/3, then 1/2 -1/2 twice.
    expected = torch.tensor([(2 / 3 + 1 / 2 + 1 / 2) / 3, (-1 / 3 - 1 / 2 - 1 / 2) / 3, -1 / 3])
    torch.testing.assert_close(of_rows(forest_of([[[1, 0]], 0])), expected)


def test_whitened_over_all_tokens_of_the_step_and_laid_on_those_the_policy_wrote():
    forest = forest_of(THREE_AND_ONE, [1, 0])
    plain = SubGroup(whiten=False).build()(forest).advantage
    got = SubGroup().build()(forest).advantage
    mask = forest.trainable(forest.rows())
    torch.testing.assert_close(got, whiten(plain, mask))
    assert abs(float(got[mask].mean())) < 1e-6
    assert (got[~mask] == 0).all()
    # the curriculum's weight comes last: whitening would take it away again
    weighted = SubGroup().build()(forest_of(THREE_AND_ONE, [1, 0], weights=[1.0, 3.0])).advantage
    torch.testing.assert_close(weighted[-1], 3 * got[-1])


def test_a_group_of_one_gets_nothing():
    # The authors' code takes a mean of 0 there, which would pay the whole reward.
    assert (SubGroup(whiten=False).build()(forest_of([1])).advantage == 0).all()


@given(st.integers(0, 10**6))
def test_on_flat_groups_it_is_group_relative_without_the_deviation(seed):
    rng = Random(seed)
    groups = [[rng.choice((0, 1, 0.25)) for _ in range(rng.randint(1, 5))] for _ in range(rng.randint(1, 3))]
    forest = forest_of(*groups)
    for weight in ("equal", "size"):
        got = SubGroup(whiten=False, weight=weight).build()(forest).advantage
        torch.testing.assert_close(got, GroupRelative(scale="none").build()(forest).advantage)


@given(st.integers(0, 10**6), st.sampled_from(["equal", "size"]), st.sampled_from(["count", "skip"]))
def test_on_random_trees_it_is_the_definition(seed, weight, equal):
    rng = Random(seed)
    forest = forest_of(*[random_nested(rng) for _ in range(2)])
    reward = forest.reward.tolist()
    paths = [[] for _ in reward]
    for row, node in zip(forest.segment_row.tolist(), forest.segment_node.tolist(), strict=True):
        paths[row].append(node)
    expected = []
    for own, r in zip(paths, reward, strict=True):
        values = []
        for depth, node in enumerate(own):
            company = [reward[i] for i, other in enumerate(paths) if node in other]
            split = len(set(company)) > 1
            if depth == 0 or (len(company) > 1 and (equal == "count" or split)):
                values.append((len(company) if weight == "size" else 1, r - sum(company) / len(company)))
        expected.append(sum(w * a for w, a in values) / sum(w for w, _ in values))
    got = SubGroup(whiten=False, weight=weight, equal_sub_groups=equal).build()(forest).advantage
    laid = torch.tensor(expected)[:, None] * forest.trainable(forest.rows())
    torch.testing.assert_close(got, laid, atol=1e-6, rtol=1e-5)


def test_one_sample_a_task_is_refused():
    assert "rollout.samples: got 1" in SubGroup().conflicts(Composition(rollout=Flat(samples=1)))[0]
    assert pytest.approx(0) == float(SubGroup().build()(forest_of([0.5])).advantage.abs().sum())
