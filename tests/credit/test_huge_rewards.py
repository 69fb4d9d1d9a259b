"""Rewards as large as they may be (utils/numbers.py) have finite advantages under every credit."""

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tree_forests import forest_of

from lyceum.core.component import kinds
from lyceum.credit.base import whiten
from lyceum.credit.group import GroupRelative, group_relative
from lyceum.utils.numbers import LARGEST_REWARD

CREDITS = sorted(kind for kind in kinds("credit") if kind not in ("turn-advantage", "state-values"))
"""These two read what was said of turns, of which there is nothing here."""
NEEDED = {kind: {"steps": "tokens", "step_tokens": 1} for kind in ("action-gae", "empg", "gigpo", "salt")}
COLUMNS = {"old_value": 0.25, "old_logprob": -1.0, "old_entropy": 0.5, "reference_logprob": -1.0}
ODD = st.sampled_from([0.0, 1.0, -0.5, 1e-320, -1e-45, 1e9, -1e12, LARGEST_REWARD, -LARGEST_REWARD])

TREES = st.lists(ODD | st.lists(ODD, min_size=1, max_size=3), min_size=1, max_size=3)


def annotated(*trees: list):
    forest = forest_of(*trees)
    whole = forest.with_columns(**{name: torch.full((forest.n_tokens,), value) for name, value in COLUMNS.items()})
    return replace(whole, parts={"progress-marks/duration": torch.ones(forest.n_rows)})


@pytest.mark.parametrize("scale", ["std", "batch"])
@pytest.mark.parametrize("size", [1.0, 1e9, LARGEST_REWARD])
def test_rewards_of_plus_and_minus_any_size_have_the_advantages_1_and_minus_1(scale, size):
    # mean 0, std size: +-size / (size + 1e-6)
    credited = GroupRelative(scale=scale).build()(annotated([size, -size, size, -size]))
    assert credited.advantage.dtype == torch.float32
    torch.testing.assert_close(credited.advantage[:, 1], torch.tensor([1.0, -1, 1, -1]), rtol=2e-6, atol=0)


def test_a_group_of_ordinary_rewards_keeps_its_advantages_beside_a_group_of_huge_ones():
    # A scale for the whole step would make 0 of the second group's difference.
    both = GroupRelative().build()(annotated([LARGEST_REWARD, -LARGEST_REWARD], [0.0, 1.0])).advantage
    torch.testing.assert_close(both[:, 1], torch.tensor([1.0, -1.0, -1.0, 1.0]), rtol=3e-6, atol=0)


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=8), st.sampled_from(["std", "none", "batch"]))
def test_ordinary_rewards_give_the_bits_that_the_formula_gives(rewards, scale):
    reward, group = torch.tensor(rewards), torch.zeros(len(rewards), dtype=torch.long)
    above = reward - reward.min()
    centred = above - torch.zeros(1).scatter_reduce(0, group, above, "mean", include_self=False)
    total = torch.zeros(1).scatter_reduce(0, group, centred.square(), "sum", include_self=False)
    variance = centred.square().sum() / len(rewards) if scale == "batch" else total / len(rewards)
    expected = centred if scale == "none" else centred / (variance.sqrt() + 1e-6)
    assert torch.equal(group_relative(reward, group, scale=scale), expected)


def test_whitening_divides_by_the_spread_of_huge_values_too():
    value = torch.tensor([[LARGEST_REWARD, -LARGEST_REWARD]])
    assert whiten(value, torch.ones(1, 2, dtype=torch.bool)).tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("kind", CREDITS)
@given(trees=st.lists(TREES, min_size=1, max_size=2))
@example(trees=[[LARGEST_REWARD, -LARGEST_REWARD], [LARGEST_REWARD, LARGEST_REWARD]])
@example(trees=[[[LARGEST_REWARD, -LARGEST_REWARD], 1e-320]])
def test_every_credit_gives_finite_advantages(kind, trees):
    credited = kinds("credit")[kind](**NEEDED.get(kind, {})).build()(annotated(*trees))
    assert credited.advantage.dtype == torch.float32
    assert credited.advantage.isfinite().all()
    assert credited.value_target is None or credited.value_target.isfinite().all()


@pytest.mark.parametrize("kind", CREDITS)
def test_the_better_of_two_has_the_higher_advantage_also_where_both_are_large(kind):
    trees = ([LARGEST_REWARD, -LARGEST_REWARD, [LARGEST_REWARD, 0.0]], [1.0, 0.0])
    advantage = kinds("credit")[kind]().build()(annotated(*trees)).advantage
    assert advantage.isfinite().all()
    assert float(advantage[0, 1]) > 0 > float(advantage[1, 1])


def test_an_eps_that_is_0_in_float32_leaves_equal_rewards_without_advantage():
    equal = torch.full((2,), 0.5)
    assert group_relative(equal, torch.zeros(2, dtype=torch.long), eps=1e-300).tolist() == [0.0, 0.0]
    assert whiten(equal[None], torch.ones(1, 2, dtype=torch.bool), eps=1e-300).tolist() == [[0.0, 0.0]]
