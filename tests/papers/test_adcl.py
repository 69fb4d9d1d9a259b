import pytest
from levelled import Source, assert_resumes, graded, ids

from lyceum.curriculum.base import is_test
from lyceum.papers.adcl.curriculum_resorted import Resorted
from lyceum.utils.errors import RecipeError


def build(seed=0, n=8, levels=(1, 2), **settings):
    return Resorted(**{"window": 4, "tests": 2} | settings).build(Source(n, levels=levels), seed=seed)


def answered(tasks, *solved):
    """Trees of two samples each, so many of which are correct."""
    return [graded(task, [True] * right + [False] * (2 - right)) for task, right in zip(tasks, solved, strict=True)]


def test_a_window_is_tested_in_the_order_known_beforehand_and_trained_on_in_the_measured_one():
    curriculum = build()
    tests = curriculum.draw(4)
    # Levels 1 and 2 in turn over eight tasks: the first four are those of level 1, whatever the order among them.
    assert [task.columns["level"] for task in tests] == [1] * 4
    assert all(is_test(task) and task.samples == 2 for task in tests)
    trees = answered(tests, 0, 2, 1, 2)
    assert [curriculum.weight(tree) for tree in trees] == [0.0] * 4
    curriculum.observe(trees)
    # Accuracies 0, 1, 1/2, 1: the two of 1 first, in their order, then one half, then 0. From hard to easy it would be
    # the reverse. All but the third stand elsewhere.
    a, b, c, d = (task.id for task in tests)
    assert curriculum.metrics()["moved/tasks"] == 3
    trained = curriculum.draw(4)
    assert [task.id for task in trained] == [b, d, c, a]
    assert all(not is_test(task) and task.samples is None for task in trained)
    assert curriculum.weight(graded(trained[0], [True])) == 1.0


def test_the_next_window_is_measured_anew_and_is_the_harder_one():
    curriculum = build()
    curriculum.observe(answered(curriculum.draw(4), 1, 1, 1, 1))
    curriculum.observe(answered(curriculum.draw(4), 2, 2, 2, 2))
    tests = curriculum.draw(4)
    assert all(is_test(task) and task.columns["level"] == 2 for task in tests)
    assert curriculum.round == 1


def test_a_window_is_of_whole_steps_and_its_last_step_is_filled_with_tests_of_the_next():
    curriculum = build(n=20, window=4)
    for _ in range(2):
        curriculum.observe(answered(curriculum.draw(3), 1, 1, 1))
    assert [is_test(task) for task in curriculum.draw(5)] == [False] * 5
    curriculum.observe([])
    assert [is_test(task) for task in curriculum.draw(3)] == [False, True, True]


def test_tests_count_their_tokens():
    curriculum = build()
    curriculum.observe(answered(curriculum.draw(4), 1, 1, 1, 1))
    assert curriculum.metrics()["tested/tokens"] == 8  # one token per sample


def test_what_could_not_be_graded_is_not_trained_on_and_a_window_without_any_is_followed_by_another():
    curriculum = build()
    tests = curriculum.draw(4)
    curriculum.observe([graded(task, [None, None]) for task in tests[:3]] + [graded(tests[3], [True, False])])
    assert ids(curriculum, 1) == [tests[3].id]
    curriculum = build()
    curriculum.observe([graded(task, [None]) for task in curriculum.draw(4)])
    assert all(is_test(task) for task in curriculum.draw(4))


def test_without_tests_the_order_is_the_one_known_beforehand():
    tasks = build(tests=0).draw(16)
    assert [task.columns["level"] for task in tasks] == ([1] * 4 + [2] * 4) * 2
    assert not any(is_test(task) for task in tasks)
    # Levels are numbers by value: 10 after 9.
    assert [task.columns["level"] for task in build(tests=0, levels=(10, 9)).draw(8)] == [9] * 4 + [10] * 4


def test_without_a_column_the_order_is_the_shuffled_one_of_the_source():
    tasks = build(tests=0, by=None, n=40).draw(40)
    assert sorted(int(task.id) for task in tasks) == list(range(40))
    assert [task.columns["level"] for task in tasks[:20]] != [1] * 20
    with pytest.raises(RecipeError, match="has None in column 'grade'"):
        Resorted(by="grade").check_tasks(Source(8))


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_resumed_run_draws_what_the_first_would_have(after):
    first = build(1, n=40)
    for _ in range(after):
        first.observe(answered(first.draw(4), 0, 2, 1, 2))
    assert_resumes(first, build(2, n=40), [])
