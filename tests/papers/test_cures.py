import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from levelled import Source, assert_resumes, graded

from lyceum.curriculum.base import is_test
from lyceum.papers.cures.curriculum_posterior import PosteriorDraws, allocate, outcome_deviation, posterior_mean
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def build(seed=0, n=12, **settings):
    usual = {"samples": 8, "least": 2, "pool": 4, "tests": 4, "picks": 8, "temperature": 0.1}
    return PosteriorDraws(**usual | settings).build(Source(n), seed=seed)


def answered(tasks, *solved, of=4):
    return [graded(task, [True] * right + [False] * (of - right)) for task, right in zip(tasks, solved, strict=True)]


def test_the_posterior_begins_uniform_and_its_deviation_is_largest_at_one_half():
    # Beta(1, 1), Beta(3, 3) and Beta(1, 5): one half, one half, and 1/6, of which sqrt(1/6 * 5/6) = sqrt(5)/6.
    assert [posterior_mean(0, 0), posterior_mean(2, 4), posterior_mean(0, 4)] == pytest.approx([0.5, 0.5, 1 / 6])
    assert [outcome_deviation(2, 4), outcome_deviation(0, 4), outcome_deviation(4, 4)] == pytest.approx(
        [0.5, math.sqrt(5) / 6, math.sqrt(5) / 6]
    )


def test_rollouts_are_in_proportion_to_the_deviation():
    # 24 in all, of deviations 1 : 1 : 2.
    assert allocate(np.array([0.2, 0.2, 0.4]), 24, least=2) == [6, 6, 12]
    # 16 by 1 : 7 would be 2 and 14, and by 1 : 15 one and 15, of which the first has at least 2.
    assert allocate(np.array([0.1, 0.7]), 16, least=2) == [2, 14]
    assert allocate(np.array([0.1, 1.5]), 16, least=2) == [2, 14]
    # 10 in three equal parts: the first gets what is over.
    assert allocate(np.array([0.5, 0.5, 0.5]), 10, least=2) == [4, 3, 3]


@given(st.lists(st.floats(0.01, 0.5), min_size=1, max_size=12), st.integers(2, 8), st.integers(0, 100))
def test_a_steps_rollouts_are_given_out_exactly(deviation, least, further):
    total = least * len(deviation) + further
    granted = allocate(np.array(deviation), total, least=least)
    assert sum(granted) == total
    assert min(granted) >= least
    order = np.argsort(deviation, kind="stable")
    assert all(granted[a] <= granted[b] + 1 for a, b in itertools.pairwise(order))


def test_a_pool_is_tested_and_then_drawn_from_by_what_the_tests_said():
    curriculum = build(temperature=0.001)
    tests = curriculum.draw(4)
    assert all(is_test(task) and task.samples == 4 for task in tests)
    curriculum.observe(answered(tests, 0, 2, 4, 1))
    # Means 1/6, 1/2, 5/6, 1/3: deviations 0.373, 0.5, 0.373, 0.471. At so low a temperature the two largest are drawn.
    first = curriculum.draw(2)
    assert {task.id for task in first} == {tests[1].id, tests[3].id}
    # 16 rollouts by 0.5 : 0.471 are 8.24 and 7.76.
    assert {task.id: task.samples for task in first} == {tests[1].id: 8, tests[3].id: 8}
    assert not any(is_test(task) for task in first)


def test_training_goes_on_updating_the_posterior():
    curriculum = build(temperature=0.001, allocate=False)
    tests = curriculum.draw(4)
    curriculum.observe(answered(tests, 0, 2, 4, 4))
    (half,) = curriculum.draw(1)
    assert half.id == tests[1].id
    assert half.samples is None  # the rollout's own number
    curriculum.observe(answered([half], 26, of=26))
    # 28 of 30: mean 29/32, deviation 0.29, now the smallest.
    assert curriculum.counts[int(half.id)] == (28, 30)
    assert half.id not in {task.id for task in curriculum.draw(3)}


def test_hardly_any_difference_is_left_at_a_high_temperature():
    drawn = []
    for seed in range(300):
        curriculum = build(seed, temperature=1e6, n=4)
        tests = curriculum.draw(4)
        curriculum.observe(answered(tests, 0, 2, 4, 0))
        drawn += [task.id for task in curriculum.draw(1)]
    assert [drawn.count(str(index)) / 300 for index in range(4)] == pytest.approx([0.25] * 4, abs=0.08)


def test_after_its_draws_a_pool_makes_way_for_the_next():
    curriculum = build(picks=6)
    first = curriculum.draw(4)
    curriculum.observe(answered(first, 1, 1, 1, 1))
    assert [is_test(task) for task in curriculum.draw(4)] == [False] * 4
    tasks = curriculum.draw(4)
    assert [is_test(task) for task in tasks] == [False, False, True, True]
    assert not {task.id for task in first} & {task.id for task in tasks[2:]}
    assert curriculum.round == 1


def test_a_step_larger_than_the_pool_is_filled_with_tests():
    curriculum = build(pool=2)
    curriculum.observe(answered(curriculum.draw(2), 1, 1))
    tasks = curriculum.draw(5)
    assert [is_test(task) for task in tasks] == [False] * 2 + [True] * 3
    assert len({task.id for task in tasks}) == 5


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_resumed_run_draws_what_the_first_would_have(after):
    first = build(1, n=40)
    for _ in range(after):
        first.observe(answered(first.draw(4), 0, 2, 4, 1))
    assert_resumes(first, build(2, n=40), [])


def test_as_many_samples_as_the_rollout_has():
    with pytest.raises(RecipeError, match=r"curriculum.samples: got 4, but rollout.samples is 8"):
        load_recipe("cures", ["curriculum.samples=4"])
    with pytest.raises(RecipeError, match="least: got 9, but samples is 8"):
        load_recipe("cures", ["curriculum.least=9"])
