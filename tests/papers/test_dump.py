import math

import numpy as np
import pytest
from levelled import Source, assert_resumes, tree_of

from lyceum.papers.dump.curriculum_dump import Dump, upper_confidence


def build(seed=0, *, levels=(1, 2), **settings):
    return Dump(**settings).build(Source(60, levels=levels), seed=seed)


def test_the_bound_is_the_mean_and_a_bonus_for_few_rollouts():
    # N = 3 + 4 = 7: 2 ln 8 = 4.1589; over 4 and over 5: 1.0397 and 0.8318; their roots 1.0197 and 0.9120.
    found = upper_confidence(np.array([0.5, 0.2]), np.array([3, 4]))
    np.testing.assert_allclose(found, [0.5 + 1.0197, 0.2 + 0.9120], atol=1e-4)


def test_without_any_rollout_all_bounds_are_equal_and_finite():
    np.testing.assert_allclose(upper_confidence(np.zeros(3), np.zeros(3, int)), [math.sqrt(2 * math.log(2))] * 3)


def test_only_the_latest_rollouts_count_in_the_mean_and_all_in_the_bonus():
    curriculum = build(window=4)
    # Four rollouts at 1.0, then two at 0.2: the window holds two of each, 0.6. Over all six it would be 0.733.
    curriculum.observe([tree_of(1, [True, False] * 2, 1.0)])
    curriculum.observe([tree_of(1, [True, False], 0.2)])
    assert list(curriculum.recent["1"]) == [1.0, 1.0, 0.2, 0.2]
    assert curriculum.rollouts == {"1": 6, "2": 0}
    # N = 6: sqrt(2 ln 7 / 7) = 0.7456 beside 0.6, and sqrt(2 ln 7) = 1.9728 for the one never drawn.
    np.testing.assert_allclose(curriculum.bounds, [0.6 + 0.7456, 1.9728], atol=1e-4)


def test_the_distribution_that_was_hardly_sampled_is_drawn_before_one_that_taught_a_little():
    curriculum = build()
    curriculum.observe([tree_of(1, [True, False] * 4, 0.5)])
    # Bounds 0.5 + sqrt(2 ln 9 / 9) = 1.199 and sqrt(2 ln 9) = 2.096: exp(-8.97) at temperature 0.1.
    assert curriculum.shares[0] == pytest.approx(math.exp(-8.97), rel=0.02)
    assert {task.columns["level"] for task in curriculum.draw(20)} == {2}


def test_a_resumed_run_draws_what_the_first_would_have():
    first = build(1, window=3)
    first.draw(10)
    first.observe([tree_of(1, [True] * 40, 0.4), tree_of(2, [True] * 40, 0.5)])
    assert_resumes(first, build(2, window=3), [tree_of(1, [True, False], 0.9)])
