from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lyceum.credit.group import GroupRelative
from lyceum.papers.d3s.credit_d3s import D3S, largest, most_varied


def test_the_extremes_are_kept_and_of_their_tokens_the_uncertain_ones(forest_of):
    # Advantages 3/4 and thrice -1/4. Half of the rows: the high one and the first of the low ones. Their |A| H: 0.075
    # and 0.75, 1 and 0.25; half of the tokens: one of each row. The prompt's entropy of 9 is no token's to train.
    forest = forest_of([(1.0, 2), (0.0, 2), (0.0, 2), (0.0, 2)])
    of = {100: 0.1, 101: 1.0, 200: 4.0, 201: 1.0}
    forest = forest.with_columns(old_entropy=torch.tensor([of.get(token, 9.0) for token in forest.token.tolist()]))
    credited = D3S(rows=0.5, tokens=0.5, scale="none").build()(forest)
    assert credited.advantage.tolist() == [[0, 0, 0.75], [0, -0.25, 0], [0, 0, 0], [0, 0, 0]]
    assert credited.metrics == {
        "rows_share": 0.5,
        "tokens_share": 0.5,
        "rows_left_out": 2,
        "rows_left_out_with_advantage": 2,
        "tokens_left_out": 2,
    }


@settings(max_examples=15)
@given(st.lists(st.integers(-8, 8), min_size=1, max_size=6), st.floats(0.1, 1))
def test_no_other_rows_have_a_larger_variance(advantages, share):
    kept = most_varied(torch.tensor(advantages, dtype=torch.float), torch.zeros(len(advantages)).long(), share)
    n = int(kept.sum())
    assert n == max(1, int(share * len(advantages) + 0.5))
    best = max(variance(chosen) for chosen in combinations(advantages, n))
    assert abs(variance([a for a, k in zip(advantages, kept, strict=True) if k]) - best) < 1e-9


def variance(values):
    middle = sum(values) / len(values)
    return sum((value - middle) ** 2 for value in values) / len(values)


def test_within_each_group_every_group_keeps_its_share(forest_of):
    # Among all, both rows kept would be of the first group, whose advantages are the larger ones.
    forest = forest_of([(4.0, 1), (0.0, 1)], [(1.0, 1), (0.0, 1)], old_entropy=1.0)
    kept = {
        among: D3S(rows=0.5, tokens=1, among=among, scale="none").build()(forest).advantage[:, 1].tolist()
        for among in ("step", "group")
    }
    assert kept == {"step": [2.0, -2.0, 0, 0], "group": [0, -2.0, 0, -0.5]}


def test_both_shares_go_to_their_end_in_a_straight_line():
    assert D3S(rows=0.5, rows_end=1.0, tokens=0.2, tokens_end=0.6, steps=4).shares(1) == pytest.approx((0.625, 0.3))
    assert D3S(rows=0.5, rows_end=0.7, steps=4).shares(99)[0] == 0.7


def test_once_relaxed_it_is_group_and_its_step_is_state(forest_of):
    forest = forest_of([(1.0, 2), (0.0, 2), (0.0, 1)], old_entropy=1.0)
    plain = GroupRelative().build()(forest).advantage
    credit = D3S(rows=0.3, tokens=0.5, steps=2).build()
    assert credit(forest).advantage.count_nonzero() < plain.count_nonzero()
    credit.observe(forest, {})
    resumed = D3S(rows=0.3, tokens=0.5, steps=2).build()
    resumed.load_state_dict(credit.state_dict())
    resumed.observe(forest, {})
    assert resumed(forest).advantage.equal(plain)


def test_of_equal_tokens_the_first_are_kept():
    mask = torch.tensor([[False, True, True], [True, True, False]])
    assert largest(torch.ones(2, 3), mask, 0.5).tolist() == [[False, True, True], [False, False, False]]
