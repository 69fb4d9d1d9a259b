import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from levelled import Source, assert_resumes, graded
from tiny_models import plain_model, policy_like

from lyceum.papers.gain_rl.curriculum_angles import Angles, around, between, moves, shared_ends, within
from lyceum.utils.errors import RecipeError


def build(seed=0, n=30, **settings):
    usual = {"pool": 16, "width": 2.0, "shift": 4.0, "most_shift": 8.0}
    return Angles(**usual | settings).build(Source(n), seed=seed, policy=policy_like(plain_model(seed=0)))


def unit(*vectors):
    return torch.nn.functional.normalize(torch.tensor(vectors, dtype=torch.float64), dim=-1)


def test_the_concentration_is_the_mean_cosine_of_pairs():
    # Cosines of the three pairs: 0, 1/sqrt(2), 1/sqrt(2). A token with itself, cosine 1, is no pair.
    assert within(unit([1, 0], [0, 3], [2, 2])) == pytest.approx(math.sqrt(2) / 3)
    assert within(unit([1, 0], [2, 0])) == pytest.approx(1.0)
    assert within(unit([1, 0])) == 0.0
    # Two against one: 1 and 0.
    assert between(unit([1, 0], [0, 1]), unit([5, 0])) == pytest.approx(0.5)
    assert between(unit([1, 0]), unit([1, 0])[:0]) == 0.0


@given(st.integers(2, 6), st.integers(0, 100))
def test_the_sum_over_pairs_is_taken_without_the_pairs(count, seed):
    states = unit(*torch.randn(count, 4, generator=torch.Generator().manual_seed(seed)).tolist())
    cosines = states @ states.T
    pairs = (cosines.sum() - cosines.diagonal().sum()) / (count * (count - 1))
    assert within(states) == pytest.approx(float(pairs), abs=1e-9)


def test_what_all_prompts_share_is_not_the_problem():
    assert shared_ends([[1, 2, 7, 9], [1, 2, 8, 8, 9]]) == (2, 1)
    assert shared_ends([[1, 2, 3]]) == (2, 0)  # of a single prompt a token is left
    assert shared_ends([[1, 2], [1, 2]]) == (1, 0)
    assert shared_ends([[4], [5]]) == (0, 0)


def test_the_mean_moves_on_by_accuracy_and_angle():
    # At an accuracy of one half only the angle moves it: 500 tanh(2 * 1/2). At 0 it is held back by as much.
    assert moves(0.5, 0.5, scale=500, sensitivity=2, target=0.5) == pytest.approx(500 * math.tanh(1))
    assert moves(0.0, 0.5, scale=500, sensitivity=2, target=0.5) == pytest.approx(0.0)
    assert moves(1.0, 0.5, scale=500, sensitivity=2, target=0.5) == pytest.approx(1000 * math.tanh(1))


def test_places_are_drawn_around_the_mean_each_once():
    rng = np.random.default_rng(0)
    drawn = [place for _ in range(300) for place in around(10.0, 2.0, 40, 4, rng)]
    assert np.mean(drawn) == pytest.approx(10, abs=0.3)
    places = around(0.0, 1.0, 2000, 2000, rng)  # weights of exp(-2e6) too
    assert places == list(range(2000))


def test_tasks_are_ordered_by_their_concentration_and_drawn_from_its_upper_end():
    curriculum = build(width=0.01)
    tasks = curriculum.draw(3)
    assert [curriculum.source[index].id for index in curriculum.order[:3]] == [task.id for task in tasks]
    prompts = [curriculum.policy.render(curriculum.source[index].messages) for index in curriculum.order]
    before, after = shared_ends(prompts)
    assert (before, after) == (0, 3)  # ``7+1=``: the number alone differs
    found = [within(states[: len(states) - after]) for states in curriculum._hidden(prompts)]
    assert found == sorted(found, reverse=True)
    assert len(set(curriculum.order)) == 16


def test_after_a_step_the_mean_has_moved_within_its_bounds():
    curriculum = build(shift=1000.0, most_shift=3.0)
    tasks = curriculum.draw(4)
    curriculum.observe([graded(task, [True, True]) for task in tasks])
    assert curriculum.mean == 3.0
    metrics = curriculum.metrics()
    assert metrics["accuracy/step"] == 1.0
    assert metrics["tokens/read"] > 0
    for _ in range(10):
        curriculum.observe([graded(task, [True]) for task in tasks])
    assert curriculum.mean == 15.0  # the last of 16
    curriculum.observe([graded(tasks[0], [None])])
    assert curriculum.mean == 15.0
    assert curriculum.metrics() == {}


def test_more_than_the_pool_is_drawn_again_from_it():
    tasks = build(pool=3).draw(7)
    assert len(tasks) == 7
    assert len({task.id for task in tasks}) == 3


def test_a_resumed_run_draws_what_the_first_would_have():
    first = build(1)
    trees = [graded(task, [True, False]) for task in first.draw(4)]
    first.observe(trees)
    assert_resumes(first, build(2), trees)


def test_its_settings_fit():
    with pytest.raises(ValueError, match=r"least_shift: got 9\.0, but most_shift is 8\.0"):
        build(least_shift=9.0)
    with pytest.raises(RecipeError, match="empty source"):
        build(n=0)
