import math
from collections import Counter

import pytest
from levelled import Source, assert_resumes, graded

from lyceum.papers.spo.curriculum_prioritised import Prioritised, outcome_deviation


def build(seed=0, n=4, **settings):
    return Prioritised.model_validate({"pool": 2, **settings}).build(Source(n), seed=seed)


def test_the_deviation_is_largest_at_one_half_and_0_without_doubt():
    # Beta(1, 1), Beta(3, 1): sqrt(3/4 * 1/4) = sqrt(3)/4; and Beta(1, 0).
    assert outcome_deviation(1, 1) == 0.5
    assert outcome_deviation(3, 1) == pytest.approx(math.sqrt(3) / 4)
    assert outcome_deviation(1, 0) == 0


def test_an_estimate_begins_at_a_half_and_fades():
    curriculum = build(keep=0.5)
    task = curriculum.draw(1)[0]
    assert curriculum.deviation(task) == 0.5
    curriculum.observe([graded(task, [True])])
    # 0.5 of 0.5 and 0.5, and one more right: 1.25 and 0.25. Then 0.625 and 0.125, and one more wrong: 0.625 and 1.125.
    assert curriculum.counts[task.id] == (1.25, 0.25)
    curriculum.observe([graded(task, [False])])
    assert curriculum.counts[task.id] == (0.625, 1.125)
    assert curriculum.deviation(task) == pytest.approx(math.sqrt(0.625 * 1.125) / 1.75)


def test_what_is_not_graded_and_what_had_help_say_nothing():
    curriculum = build()
    task = curriculum.draw(1)[0]
    curriculum.observe([graded(task, [None])])
    assert curriculum.counts == {}


def test_tasks_are_picked_by_their_deviation_plus_exploration():
    # Of two tasks one is solved 1000 times in 1001 (deviation 0.0316), the other half of the time: the first is picked
    # with probability (0.0316 + 0.05) / (0.0316 + 0.05 + 0.5 + 0.05) = 0.129.
    picked: Counter[str] = Counter()
    for seed in range(1000):
        curriculum = build(n=2, seed=seed)
        curriculum.counts = {"0": (1000.0, 1.0), "1": (1.0, 1.0)}
        picked[curriculum.draw(1)[0].id] += 1
    assert picked["0"] / 1000 == pytest.approx(0.129, abs=0.03)  # three standard deviations: 0.032


def test_a_pool_of_one_is_taken_whole_and_in_its_order():
    curriculum, plain = build(pool=1, n=8), Prioritised().draws.build(Source(8), seed=0)
    assert [task.id for task in curriculum.draw(8)] == [task.id for task in plain.draw(8)]


def test_it_says_what_was_picked_and_resumes():
    curriculum = build(n=8)
    tasks = curriculum.draw(4)
    curriculum.observe([graded(task, [True]) for task in tasks])
    curriculum.draw(4)
    metrics = curriculum.metrics()
    assert metrics["tasks/known"] == 4
    assert metrics["deviation/pool"] == pytest.approx((4 * 0.5 + 4 * outcome_deviation(1.45, 0.45)) / 8)
    # All right once: 0.9 of 0.5 and 0.5, and one more right.
    assert metrics["deviation/picked"] >= outcome_deviation(1.45, 0.45)
    assert_resumes(curriculum, build(n=8, seed=3), [graded(task, [True, False]) for task in tasks])
