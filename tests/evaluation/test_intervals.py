"""Intervals against metrics from tables, against each other, and against how often they hold the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyceum.evaluation.intervals import (
    Interval,
    difference_of_intervals,
    difference_over_tasks,
    mean_interval,
    mean_over_seeds,
    share_interval,
    wilson,
)


def test_wilson_of_none_and_of_half_of_ten():
    # none of 10: low exactly 0, high z^2 / (n + z^2) = 3.8415 / 13.8415 = 0.2775; the normal formula says [0, 0]
    none = wilson(0.0, 10)
    assert none.low == 0
    assert none.high == pytest.approx(3.8415 / 13.8415, abs=1e-4)
    # 5 of 10: 0.5 -/+ (1.96 / 1.38415) * sqrt(0.025 + 3.8415 / 400) = 0.5 -/+ 1.41602 * 0.18602 = 0.2634
    half = wilson(0.5, 10)
    assert (half.low, half.high) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_one_verdict_a_task_is_wilsons_interval():
    # sum (x - p)^2 = n p (1 - p) for values 0 and 1, so that d is 1
    assert share_interval([1.0, 0, 0, 0]) == wilson(0.25, 4)


def test_tasks_that_vary_less_than_coins_count_for_more():
    # p = 0.5, sum (x - p)^2 = 4 / 16 = 0.25, four coins 1: d = 0.5 / 1.25, n_eff = 4 * 1.25 / 0.5 = 10
    assert share_interval([0.25, 0.75, 0.25, 0.75]) == wilson(0.5, 10)


def test_all_tasks_solved_still_leaves_doubt():
    # Resampling ones gives ones: a bootstrap would claim certainty after three tasks. 3 / (3 + 3.8415) = 0.4385
    assert share_interval([1.0, 1.0, 1.0]).low == pytest.approx(0.4385, abs=1e-4)


def test_one_wrong_sample_leaves_about_as_much_doubt_as_none():
    # 40 tasks, 8 samples each, one sample wrong. A bootstrap over tasks says 99.7 [99, 100], beside 100 [91, 100].
    none, one = share_interval([1.0] * 40), share_interval([1.0] * 39 + [0.875])
    assert abs(one.low - none.low) < 0.03
    assert one.high < none.high


def test_samples_of_one_task_do_not_narrow_the_interval():
    # 20 tasks that are always or never right but for one sample of one task: as good as 20 trials, however many
    # samples. Over all 20 * 100 samples as trials, Wilson's half width would be 0.022.
    values = np.array([1.0] * 10 + [0.0] * 9 + [0.01])
    found = share_interval(values)
    assert found.high - found.low > 0.35


@pytest.mark.parametrize("concentration", [1.0, 10.0])
@pytest.mark.parametrize("tasks", [5, 20])
def test_intervals_hold_the_true_mean_about_95_times_in_100(tasks, concentration):
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        chance = generator.beta(0.4 * concentration, 0.6 * concentration, tasks)
        found = share_interval(generator.binomial(8, chance) / 8)
        held += found.low <= 0.4 <= found.high
    # 190 expected, sd 3.1; measured 190 to 198. A percentile bootstrap of tasks: 165 to 189.
    assert held >= 176


def test_three_seeds_by_hand():
    # 0.1 0.2 0.3: mean 0.2, sd 0.1, t_2 = 4.30265: half width 4.30265 * 0.1 / sqrt(3) = 0.24841
    found = mean_over_seeds([0.1, 0.2, 0.3])
    assert (found.low, found.high) == pytest.approx((0.2 - 0.24841, 0.2 + 0.24841), abs=1e-5)


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [(2, -0.522748441, 0.189053382), (8, -1.704976430, -0.045868364), (40, -0.407636922, 0.126195575)],
)
def test_a_bootstrap_interval_is_what_it_was(n, low, high):
    # Read with the quantiles of Student's t integrated on a grid, before they came from scipy.
    found = mean_interval(np.random.default_rng(n).normal(size=n))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-8)


def test_one_seed_has_no_spread():
    with pytest.raises(ValueError, match="got 1 seeds; allowed: 2 or more"):
        mean_over_seeds([0.4])


def test_arms_of_two_intervals_add_as_squares():
    # d = 0.3; low arm hypot(0.7 - 0.6, 0.48 - 0.4) = hypot(0.1, 0.08); high arm hypot(0.75 - 0.7, 0.4 - 0.35)
    found = difference_of_intervals(Interval(0.4, 0.35, 0.48), Interval(0.7, 0.6, 0.75))
    assert (found.mean, found.low, found.high) == pytest.approx((0.3, 0.3 - 0.128062, 0.3 + 0.0707107), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_a_share_and_its_interval_stay_in_order_and_in_bounds(values):
    found = share_interval(values)
    assert 0 <= found.low <= found.mean + 1e-12
    assert found.mean - 1e-12 <= found.high <= 1


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    values = [0.1, 0.5, 0.25, 0.9, 0.4]
    assert mean_interval(values, seed=1) == mean_interval(values, seed=1)
    assert mean_interval(values, seed=1) != mean_interval(values, seed=2)


def test_a_share_outside_its_bounds_is_refused():
    with pytest.raises(ValueError, match=r"got 0.0 to 25.0; allowed: proportions in 0..1"):
        share_interval([0.0, 25.0])


def test_the_interval_of_paired_differences_is_students_with_one_more_difference():
    # mean 1/4, squared deviations 9/16 + 3/16 = 3/4, t_3 = 3.182: half = 3.182 * sqrt((3/4 + 1/4) / (3 * 4)) = 0.9187
    found = difference_over_tasks([1, 0, 0, 0], 0.25)
    assert (found.mean, found.high - found.mean) == (0.25, pytest.approx(0.9187, abs=1e-3))
    # None of ten tasks differs: about two either way with one sample each, less with 16 (sqrt(1 / 90) * 2.262).
    assert difference_over_tasks([0] * 10, 1).high == pytest.approx(0.2385, abs=1e-3)
    assert difference_over_tasks([0] * 10, 1 / 16).high == pytest.approx(0.2385 / 4, abs=1e-3)
    assert difference_over_tasks([0.5], 1) == Interval(0.5, -0.5, 1.5)


def test_the_interval_of_paired_differences_covers():
    # 30 tasks whose accuracies two models share, 8 samples each: of 400 intervals 95 % and more hold the difference, 0.
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        share = generator.beta(0.5, 0.5, 30)
        first, second = (generator.binomial(8, share) / 8 for _ in range(2))
        found = difference_over_tasks(second - first, 1 / 8)
        inside += found.low <= 0 <= found.high
    assert inside >= 0.95 * 400
