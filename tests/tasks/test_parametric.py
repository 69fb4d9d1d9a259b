"""Tasks to order from real-valued parameters."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyceum.papers.alp_gmm.curriculum_alp_gmm import ParametricSource
from lyceum.tasks.base import kept_for_evaluation, rounded
from lyceum.tasks.chain import Chain, chain_text, is_heldout
from lyceum.tasks.countdown import Countdown
from lyceum.tasks.logic import Logic

CHAIN = Chain().build("train", 3)
COUNTDOWN = Countdown().build("train", 3)


def test_the_fraction_is_the_probability_of_one_more():
    rng = random.Random(1)
    drawn = [rounded(rng, 2.25) for _ in range(4000)]
    assert set(drawn) == {2, 3}
    assert 890 < drawn.count(3) < 1110  # 1000; 4 standard deviations are 110
    assert {rounded(rng, 3.0) for _ in range(50)} == {3}


def test_only_sources_that_make_tasks_to_order_say_so():
    assert isinstance(CHAIN, ParametricSource)
    assert isinstance(COUNTDOWN, ParametricSource)
    assert not isinstance(Logic().build("train", 0), ParametricSource)


@given(st.floats(1, 8), st.floats(1, 9), st.integers(0, 10**6))
def test_a_chain_is_of_its_parameters(operations, largest, key):
    values = {"operations": operations, "largest_operand": largest}
    task = CHAIN.at(values, str(key))
    assert task == CHAIN.at(values, str(key))
    assert abs(task.columns["level"] - operations) < 1
    assert max(map(abs, task.columns["operations"])) < largest + 1
    assert not is_heldout(chain_text(task.columns["start"], task.columns["operations"]))


@settings(max_examples=30)
@given(st.floats(2, 5), st.floats(10, 20), st.integers(0, 10**6))
def test_a_countdown_problem_is_of_its_parameters(numbers, largest, key):
    values = {"numbers": numbers, "largest_number": largest}
    task = COUNTDOWN.at(values, str(key))
    assert task == COUNTDOWN.at(values, str(key))
    assert abs(task.columns["level"] - numbers) < 1
    assert max(task.columns["numbers"]) < largest + 1
    assert not kept_for_evaluation(f"{sorted(task.columns['numbers'])}={task.answer}")


@pytest.mark.parametrize("source", [CHAIN, COUNTDOWN, Countdown(levels=(2, 8), max_number=4).build("train", 0)])
@pytest.mark.parametrize("end", [0, 1])
def test_there_are_tasks_at_the_ends_of_the_bounds(source, end):
    values = {name: bounds[end] for name, bounds in source.parameters.items()}
    assert len({source.at(values, str(key)).messages[0]["content"] for key in range(20)}) > 10


def test_the_bounds_are_those_of_the_settings():
    assert Chain(levels=(5, 2)).build("train", 0).parameters == {"operations": (2, 5), "largest_operand": (1, 9)}
    source = Countdown(levels=(3,), min_number=5, max_number=50).build("train", 0)
    assert source.parameters == {"numbers": (3, 3), "largest_number": (14, 50)}


def test_another_key_is_another_task_and_none_of_the_numbered_ones():
    values = {"operations": 4.5, "largest_operand": 6.5}
    tasks = [CHAIN.at(values, str(key)) for key in range(40)]
    assert {task.columns["level"] for task in tasks} == {4, 5}
    assert len({task.messages[0]["content"] for task in tasks}) == 40
    assert not {task.id for task in tasks} & {CHAIN[i].id for i in range(40)}


def test_what_is_held_out_is_made_of_what_is_held_out():
    task = Chain().build("heldout", 3).at({"operations": 3.0, "largest_operand": 9.0}, "0")
    assert is_heldout(chain_text(task.columns["start"], task.columns["operations"]))
