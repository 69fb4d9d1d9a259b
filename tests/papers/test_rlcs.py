import numpy as np
import pytest
from levelled import Source, assert_resumes, tree_of

from lyceum.papers.rlcs.curriculum_tiers import Tiers, mid_range


def build(seed=0, *, levels=(1, 2, 3), **settings):
    return Tiers(**settings).build(Source(60, levels=levels), seed=seed)


def test_the_middle_counts_most_and_the_ends_least():
    # 4 p (1 - p) is 0, 3/4, 1, 0; on top of a tenth: 0.1, 0.775, 1, 0.1.
    np.testing.assert_allclose(mid_range(np.array([0.0, 0.25, 0.5, 1.0]), 0.1), [0.1, 0.775, 1, 0.1])


def test_before_any_outcome_the_tiers_known_beforehand_speak():
    # Three tiers: accuracies 5/6, 1/2, 1/6, weights 4 * 5/36 = 5/9, 1, 5/9 at a least of almost 0.
    curriculum = build(least=1e-12)
    assert list(curriculum.accuracy.values()) == pytest.approx([5 / 6, 1 / 2, 1 / 6])
    np.testing.assert_allclose(curriculum.shares, np.array([5, 9, 5]) / 19)
    np.testing.assert_allclose(build(offline="unknown").shares, [1 / 3] * 3)


def test_online_accuracies_correct_them():
    curriculum = build(decay=0.75)
    # The tier taken for the hardest is solved half of the time in one group and always in the other: mean 3/4.
    curriculum.observe([tree_of(3, [True, False]), tree_of(3, [True, True])])
    assert curriculum.accuracy["3"] == pytest.approx(0.75 / 6 + 0.25 * 0.75)
    assert curriculum.accuracy["1"] == pytest.approx(5 / 6)  # without an outcome it stays


def test_a_tier_that_is_solved_always_is_drawn_least():
    curriculum = build(decay=0.0, least=0.1)
    curriculum.observe([tree_of(1, [True] * 2), tree_of(2, [True, False]), tree_of(3, [False] * 2)])
    np.testing.assert_allclose(curriculum.shares, np.array([1, 10, 1]) / 12)
    drawn = [task.columns["level"] for task in curriculum.draw(400)]
    assert drawn.count(2) / 400 == pytest.approx(10 / 12, abs=0.06)


def test_a_resumed_run_draws_what_the_first_would_have():
    first = build(1)
    first.draw(10)
    first.observe([tree_of(1, [True, False]), tree_of(2, [True])])
    assert_resumes(first, build(2), [tree_of(3, [True, False])])
