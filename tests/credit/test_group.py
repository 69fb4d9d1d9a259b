import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lyceum.credit.group import GroupRelative, group_relative
from lyceum.credit.leave_one_out import LeaveOneOut, leave_one_out
from lyceum.credit.reinforce import Reinforce, outcome_advantage

ONE_OF_FOUR = torch.tensor([0.0, 0, 0, 1])
ONE_GROUP = torch.zeros(4, dtype=torch.long)


def test_one_of_four_solved_divides_by_n():
    # mean 1/4, deviations -1/4 thrice and 3/4, std sqrt((3/16 + 9/16) / 4) = sqrt(3)/4: -1/sqrt(3), sqrt(3).
    advantage = group_relative(ONE_OF_FOUR, ONE_GROUP)
    torch.testing.assert_close(advantage, torch.tensor([-1.0, -1, -1, 3]) / math.sqrt(3))


def test_ddof_1_divides_by_n_minus_1_as_trl_and_verl_do():
    # std sqrt((3/16 + 9/16) / 3) = 1/2
    advantage = group_relative(ONE_OF_FOUR, ONE_GROUP, ddof=1)
    torch.testing.assert_close(advantage, torch.tensor([-0.5, -0.5, -0.5, 1.5]))


def test_without_scale_nothing_is_divided():
    advantage = group_relative(ONE_OF_FOUR, ONE_GROUP, scale="none")
    torch.testing.assert_close(advantage, torch.tensor([-0.25, -0.25, -0.25, 0.75]))


def test_batch_scale_divides_by_the_std_of_all_raw_rewards():
    # 1, 0 | 1, 1: group means 1/2 and 1, all four have mean 3/4 and std sqrt(3)/4; of the centred ones it is sqrt(1/8)
    advantage = group_relative(torch.tensor([1.0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]), scale="batch")
    torch.testing.assert_close(advantage, torch.tensor([2.0, -2, 0, 0]) / math.sqrt(3))


def test_eps_is_added_to_the_std_and_not_to_the_variance():
    # 0 and 2: std 1; 1 / (1 + 1) is 1/2, while 1 / sqrt(1 + 1) would be 0.71
    advantage = group_relative(torch.tensor([0.0, 2]), torch.tensor([0, 0]), eps=1.0)
    torch.testing.assert_close(advantage, torch.tensor([-0.5, 0.5]))


def test_groups_are_ragged_in_any_order_and_numbers_may_be_missing():
    # group 7: 0, 4 (mean 2, std 2); group 2: 1, 1, 4 (mean 2, std sqrt 2)
    advantage = group_relative(torch.tensor([1.0, 0, 1, 4, 4]), torch.tensor([2, 7, 2, 7, 2]))
    torch.testing.assert_close(advantage, torch.tensor([-1 / math.sqrt(2), -1, -1 / math.sqrt(2), 1, math.sqrt(2)]))


@pytest.mark.parametrize("scale", ["std", "none", "batch"])
@given(reward=st.floats(-1000, 1000, width=32), rows=st.integers(1, 16))
def test_equal_rewards_give_exactly_zero(scale, reward, rows):
    # A float32 mean of equal rewards can miss by one ulp, which the division makes an advantage. One row: no company.
    value, group = torch.full((rows,), reward), torch.zeros(rows, dtype=torch.long)
    assert (group_relative(value, group, scale=scale) == 0).all()
    assert (leave_one_out(value, group) == 0).all()
    assert (outcome_advantage(value, group, constant=None) == 0).all()


def test_leave_one_out_compares_with_the_others():
    # 1 - 0, and 0 - 1/3; the group's mean of 1/4 would give 3/4 and -1/4
    torch.testing.assert_close(leave_one_out(ONE_OF_FOUR, ONE_GROUP), torch.tensor([-1 / 3, -1 / 3, -1 / 3, 1]))


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12))
def test_leave_one_out_is_the_definition_and_the_centred_reward_times_n_over_n_minus_1(rewards):
    n = len(rewards)
    reward, group = torch.tensor(rewards, dtype=torch.float64), torch.zeros(n, dtype=torch.long)
    others = torch.tensor([sum(rewards[:i] + rewards[i + 1 :]) / (n - 1) for i in range(n)], dtype=torch.float64)
    torch.testing.assert_close(leave_one_out(reward, group), reward - others)
    centred = group_relative(reward, group, scale="none")
    torch.testing.assert_close(leave_one_out(reward, group), centred * n / (n - 1))


def test_plain_outcome_needs_no_group():
    reward, group = torch.tensor([1.0, 3.0]), torch.tensor([0, 1])
    torch.testing.assert_close(outcome_advantage(reward, group), reward)
    torch.testing.assert_close(outcome_advantage(reward, group, constant=0.5), torch.tensor([0.5, 2.5]))
    torch.testing.assert_close(outcome_advantage(reward, group, constant=None), torch.tensor([-1.0, 1.0]))


def test_settings_reach_the_mathematics(forest_of):
    forest = forest_of([(0.0, 1), (0.0, 1), (0.0, 1), (1.0, 1)])
    of_the_solved = [
        (GroupRelative(ddof=1), 1.5),
        (GroupRelative(scale="none"), 0.75),
        (GroupRelative(eps=1.0), 0.75 / (3**0.5 / 4 + 1)),
        (LeaveOneOut(), 1.0),
        (Reinforce(constant=0.5), 0.5),
        (Reinforce(baseline="batch-mean"), 0.75),
    ]
    for settings, expected in of_the_solved:
        advantage = settings.build()(forest).advantage
        torch.testing.assert_close(advantage[3], torch.tensor([0.0, expected]))


def test_a_constant_that_the_baseline_does_not_read_is_refused():
    with pytest.raises(ValidationError, match=r"constant: got 0.5 with baseline 'batch-mean', which does not read it"):
        Reinforce(baseline="batch-mean", constant=0.5)
