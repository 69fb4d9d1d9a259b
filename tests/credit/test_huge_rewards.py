"""A huge but finite reward is a number: what can be represented comes out, and what cannot is refused by name."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tree_forests import forest_of

from lyceum.core.component import kinds
from lyceum.credit.base import whiten
from lyceum.credit.group import GroupRelative, group_relative
from lyceum.utils.errors import Diverged

CREDITS = sorted(kinds("credit"))
NEEDED = {kind: {"steps": "tokens", "step_tokens": 1} for kind in ("action-gae", "empg", "gigpo", "salt")}
COLUMNS = {"old_value": 0.25, "old_logprob": -1.0, "old_entropy": 0.5, "reference_logprob": -1.0}
ODD = st.sampled_from([0.0, 1.0, -0.5, 1e-320, -1e-45, 1e15, -1e18, 1e30, -1e38, 3.5e38, 1e150, -1e200, 1e308, -1e308])

TREES = st.lists(ODD | st.lists(ODD, min_size=1, max_size=3), min_size=1, max_size=3)


def annotated(*trees: list):
    forest = forest_of(*trees)
    return forest.with_columns(**{name: torch.full((forest.n_tokens,), value) for name, value in COLUMNS.items()})


@pytest.mark.parametrize("scale", ["std", "batch"])
@pytest.mark.parametrize("size", [1e15, 1e19, 1e30, 1e38, 1e100, 1e308, 1.7e308])
def test_rewards_of_plus_and_minus_any_size_have_the_advantages_1_and_minus_1(scale, size):
    # mean 0, std size: +-size / size. In float32 the square of 1e20 is infinite, and infinity over infinity is nan.
    credited = GroupRelative(scale=scale).build()(annotated([size, -size, size, -size]))
    assert credited.advantage.dtype == torch.float32
    assert credited.advantage[:, 1].tolist() == [1.0, -1.0, 1.0, -1.0]


def test_a_group_of_ordinary_rewards_keeps_its_advantages_beside_a_group_of_huge_ones():
    # A scale for the whole step would make 0 of the second group's difference.
    both = GroupRelative().build()(annotated([1e308, -1e308], [0.0, 1.0])).advantage
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
    value = torch.tensor([[1e308, -1e308]], dtype=torch.float64)
    assert whiten(value, torch.ones(1, 2, dtype=torch.bool)).tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("kind", CREDITS)
@given(trees=st.lists(TREES, min_size=1, max_size=2))
@example(trees=[[1e308, -1e308], [1e308, 1e308]])
@example(trees=[[[1e308, -1e308], 1e-320]])
def test_every_credit_gives_finite_advantages_or_says_that_they_would_not_be(kind, trees):
    largest = max(abs(reward) for tree in trees for reward in flat(tree))
    # Below 1e37 everything that a credit makes of a few rewards fits float32: no excuse holds.
    with pytest.raises(Diverged, match="is not finite in float32") if largest > 1e37 else nullcontext():
        credited = kinds("credit")[kind](**NEEDED.get(kind, {})).build()(annotated(*trees))
        assert credited.advantage.dtype == torch.float32
        assert credited.advantage.isfinite().all()
        assert credited.value_target is None or credited.value_target.isfinite().all()
        if largest > 1e37:  # that these did fit is as good
            raise Diverged("is not finite in float32")


@pytest.mark.parametrize("kind", CREDITS)
def test_rewards_of_1e30_are_no_reason_for_any_credit_to_refuse(kind):
    advantage = kinds("credit")[kind]().build()(annotated([1e30, -1e30, [1e30, 0.0]], [1.0, 0.0])).advantage
    assert advantage.isfinite().all()
    assert float(advantage[0, 1]) > 0 > float(advantage[1, 1])


def test_the_refusal_names_the_outcomes_and_what_to_do():
    with pytest.raises(Diverged, match=r"between -1e\+308 and 1e\+308. Give smaller ones \(reward.weight\), divide"):
        kinds("credit")["leave-one-out"]().build()(annotated([1e308, -1e308]))


def flat(tree) -> list[float]:
    return [r for below in tree for r in (flat(below) if isinstance(below, list) else [below])]


def test_an_eps_that_is_0_in_float32_leaves_equal_rewards_without_advantage():
    equal = torch.full((2,), 0.5)
    assert group_relative(equal, torch.zeros(2, dtype=torch.long), eps=1e-300).tolist() == [0.0, 0.0]
    assert whiten(equal[None], torch.ones(1, 2, dtype=torch.bool), eps=1e-300).tolist() == [[0.0, 0.0]]
