import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from levelled import Source, assert_resumes, graded, rescued

from lyceum.core.types import Task
from lyceum.papers.knapsack.curriculum_knapsack import Knapsack, Rates, allocate, need, solve, value
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

FLOORS = {"unknown": 8, "least": 2, "most": 128, "never_solved": 2, "always_solved": 2, "confidence": 0.9}


def build(seed=0, *, levels=(1, 2), **settings):
    return Knapsack(**settings).build(Source(60, levels=levels), seed=seed)


def test_the_value_is_the_chance_of_a_gradient_times_what_it_gains():
    # p = 1/4, two samples: they differ with probability 1 - 1/16 - 9/16 = 3/8; the gain is 1/4 * 9/16 = 9/64.
    np.testing.assert_allclose(value(np.array([1.0, 2.0]), 0.25), [0, 3 / 8 * 9 / 64])
    # One that is solved three times in four differs as often, and has less to gain: 3/4 * 1/16.
    np.testing.assert_allclose(value(np.array([2.0]), 0.75), [3 / 8 * 3 / 64])


def test_the_need_grows_with_how_one_sided_a_task_is():
    # ln 0.1 / ln 0.5 = 3.32, and as much for 0.9 as for 0.1: ln 0.1 / ln 0.9 = 21.85
    assert need(0.5, 0.9) == pytest.approx(3.3219, abs=1e-4)
    assert need(0.1, 0.9) == need(0.9, 0.9) == pytest.approx(21.854, abs=1e-3)


def test_the_program_finds_the_best_allocation_of_all():
    # Twelve further rollouts among three tasks, at most seven each: every way is tried.
    rates, left, least, most = [0.05, 0.3, 0.8], 12, 2, 9

    def worth(further):
        return sum(float(value(np.array([least + k], dtype=float), p)[0]) for p, k in zip(rates, further, strict=True))

    ways = [way for way in itertools.product(range(most - least + 1), repeat=3) if sum(way) == left]
    best = max(ways, key=worth)
    assert solve(rates, left, least=least, most=most) == list(best)


def test_a_rollout_is_worth_what_it_adds_and_not_what_its_floor_was_worth():
    # The seventh rollout of a task solved at 0.5 adds 0.125 * 0.5^6 = 0.00195, the third of one at 0.9 only
    # 0.009 * (0.27 - 0.18) = 0.00081. The released code counts 0.00243 for that, all three, and shares out 4 and 1.
    assert solve([0.5, 0.9], 5, least=2, most=128) == [5, 0]


def test_of_two_tasks_that_are_as_one_sided_the_harder_gets_more():
    # Both show answers of both kinds as often, but 0.2 * 0.64 is four times 0.8 * 0.04: there is more to gain.
    hard, easy = solve([0.2, 0.8], 12, least=2, most=14)
    assert hard > 7 > easy


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4), st.integers(0, 14))
def test_the_program_is_never_beaten_by_moving_one_rollout(rates, left):
    further = solve(rates, left, least=2, most=8)
    assert sum(further) == left
    if max(further) > 6:
        return  # more than all of them can take: what is above is spread

    def worth(way):
        return sum(float(value(np.array([2.0 + k]), p)[0]) for p, k in zip(rates, way, strict=True))

    for i, j in itertools.permutations(range(len(rates)), 2):
        if further[i] > 0 and further[j] < 6:
            moved = [k - (place == i) + (place == j) for place, k in enumerate(further)]
            assert worth(moved) <= worth(further) + 1e-12


rates_of_a_batch = st.lists(st.sampled_from([None, 0.0, 1.0, 0.03, 0.25, 0.5, 0.9]), min_size=1, max_size=12)


@given(rates_of_a_batch)
def test_the_batchs_budget_is_kept_exactly_and_nobody_goes_below_a_floor(rates):
    budget = allocate(rates, 8 * len(rates), **FLOORS)
    assert sum(budget) == 8 * len(rates)
    assert all(samples >= (8 if rate is None else 2) for rate, samples in zip(rates, budget, strict=True))


def test_what_solved_tasks_save_goes_to_the_hard_one():
    # 24 rollouts: 2 + 2 for the solved ones, 20 for the hard one, which needs ln 0.1 / ln 0.95 = 44.
    assert allocate([1.0, 1.0, 0.05], 24, **FLOORS) == [2, 2, 20]


def test_what_nobody_in_between_needs_goes_to_tasks_that_were_never_solved():
    # 32 rollouts, floors 2 each: 24 are left. A task at 1/2 needs 3 (3.32 rounded down), so 21 are over: the failed
    # ones get 11 and 10 of them, and the one in between 3.
    assert allocate([0.0, 0.5, 0.0, 1.0], 32, **FLOORS) == [13, 5, 12, 2]


def test_tasks_that_are_not_known_are_not_taken_for_failed():
    # Floors 2 and 8 leave 6 of 16, all for the task that fails. In the released code the other one has 3 of them.
    assert allocate([0.0, None], 16, **FLOORS) == [8, 8]


def test_without_failed_tasks_the_surplus_goes_to_all_that_are_not_in_between():
    # 24 rollouts, floors 2, 2, 8: 12 left, 3 needed, 9 over: 5 and 4.
    assert allocate([1.0, 0.5, None], 24, **FLOORS) == [7, 5, 12]


def test_batches_that_say_nothing_are_shared_out_evenly():
    assert allocate([None, 1.0, None], 24, **FLOORS) == [8, 8, 8]
    assert allocate([1.0, 1.0], 16, **FLOORS) == [8, 8]
    # All failed: the solved floor of nobody is taken away.
    assert allocate([0.0, 0.0, 0.0], 24, **FLOORS) == [8, 8, 8]


def test_a_batch_in_which_all_are_in_between_gets_everything_too():
    # The needs are 3 each, 6 of the 12 that are left: nobody else is there to take the rest.
    assert allocate([0.5, 0.5], 16, **FLOORS) == [8, 8]


def test_the_upper_bound_gives_way_where_nobody_else_can_take_the_rest():
    assert allocate([0.5, 0.3], 16, **FLOORS | {"most": 6}) == [8, 8]


def test_a_total_below_the_floors_is_an_error():
    with pytest.raises(ValueError, match="got 7; the floors alone are 16"):
        allocate([None, None], 7, **FLOORS)


def test_a_rate_is_that_of_the_latest_groups():
    rates = Rates(window=8)
    rates.add("t", 4, 4)
    assert rates.rate("t", known_from=8) is None
    rates.add("t", 0, 4)
    assert rates.rate("t", known_from=8) == 0.5
    rates.add("t", 1, 4)  # the two latest have eight outcomes: the first group is forgotten, 1 of 8
    assert rates.rate("t", known_from=8) == 0.125
    rates.add("t", 9, 12)  # one group that fills the window alone
    assert rates.rate("t", known_from=8) == 0.75


def test_a_task_is_known_by_itself_then_by_its_category_then_not_at_all():
    curriculum = build(levels=(1, 2))
    seen, same, other = (Task(id, (), "", {"level": level}) for id, level in (("a", 1), ("b", 1), ("c", 2)))
    curriculum.observe([graded(seen, [True] * 6 + [False] * 2)])
    assert curriculum.rate(seen) == 0.75
    assert curriculum.rate(same) == 0.75  # its category's
    assert curriculum.rate(other) is None
    curriculum.observe([graded(same, [True] * 0 + [False] * 8)])
    assert curriculum.rate(seen) == 0.75  # its own
    assert curriculum.rate(Task("d", (), "", {"level": 1})) == 6 / 16


def test_rewards_without_a_verdict_are_no_rate():
    curriculum = build()
    curriculum.observe([graded(Task("a", (), "", {"level": 1}), [0.4] * 8)])
    assert curriculum.rate(Task("a", (), "", {"level": 1})) is None


def test_drawn_tasks_are_granted_ragged_numbers_that_keep_the_budget():
    curriculum = build(samples=8)
    assert [task.samples for task in curriculum.draw(4)] == [8, 8, 8, 8]
    curriculum.observe(
        [graded(Task("x", (), "", {"level": 1}), [True] * 8), graded(Task("y", (), "", {"level": 2}), [False] * 8)]
    )
    tasks = curriculum.draw(8)
    assert sum(task.samples for task in tasks) == 64
    # Level 1 is always solved: 2. The rest goes to the others, which were never solved.
    assert {task.samples for task in tasks if task.columns["level"] == 1} == {2}
    assert min(task.samples for task in tasks if task.columns["level"] == 2) > 8


def test_figures_are_of_the_step_observed():
    curriculum = build()
    tree = graded(Task("x", (), "", {"level": 1}, samples=10), [True] * 5 + [False] * 5)
    curriculum.observe([tree])
    assert curriculum.metrics() == {"samples/1": 10, "most-samples/task": 10, "rate/1": 0.5}


def test_a_resumed_run_draws_and_grants_what_the_first_would_have():
    first = build(1)
    trees = [graded(task, [True] + [False] * 7) for task in first.draw(10)]
    first.observe(trees)
    assert_resumes(first, build(2), [graded(Task("7", (), "", {"level": 2}), [True] * 8)])


def test_what_it_wraps_is_drawn_observed_and_checked():
    curriculum = Knapsack.model_validate({"draws": "self-evolving"}).build(Source(60), seed=0)
    curriculum.observe([graded(Source()[0], [True, False], 0.6)])
    assert curriculum.inner.value["1"] == pytest.approx(0.3)
    assert curriculum.metrics()["value/1"] == pytest.approx(0.3)
    with pytest.raises(RecipeError, match="column 'level'"):
        Knapsack.model_validate({"by": None, "draws": "self-evolving"}).check_tasks(Source(column="other"))


def test_the_rollouts_own_number_must_be_the_same():
    with pytest.raises(RecipeError, match=r"curriculum.samples: got 8, but rollout.samples is 16"):
        load_recipe("knapsack", ["rollout.samples=16"])


def test_floors_above_the_mean_are_refused():
    with pytest.raises(RecipeError, match=r"always_solved: got 9, but samples is 8; allowed: 2 to 8"):
        load_recipe("knapsack", ["curriculum.always_solved=9"])


def test_what_was_right_under_a_hint_says_nothing_of_what_a_task_needs():
    # Eight failures, and the eight hinted successes that were trained in their place: never solved, not always.
    curriculum = build(by=None)
    (task,) = curriculum.draw(1)
    curriculum.observe([rescued(task, [True] * 8)])
    assert curriculum.rate(task) == 0
