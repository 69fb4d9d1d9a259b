import pytest
from levelled import Source, assert_resumes, graded

from lyceum.core.types import Task
from lyceum.papers.qwenlong_l1.curriculum_phases import Phases, difficulty, prompt_length
from lyceum.utils.errors import RecipeError


def build(seed=0, n=120, **settings):
    """Tasks ``7+1=`` to ``119+1=``: of 4 characters the first ten, of 5 up to 99, of 6 from 100 on."""
    usual = {"lengths": [4, 5], "every_steps": 2, "returning": 0.5}
    return Phases.model_validate(usual | settings).build(Source(n), seed=seed)


def answered(tasks, right=1, of=2):
    return [graded(task, [True] * right + [False] * (of - right)) for task in tasks]


def lengths(tasks):
    return [prompt_length(task.messages) for task in tasks]


def test_each_phase_draws_what_is_longer_than_the_phase_before_it():
    curriculum = build(returning=0.0)
    for _ in range(2):
        tasks = curriculum.draw(3)
        assert lengths(tasks) == [4] * 3
        curriculum.observe(answered(tasks))
    for _ in range(5):  # the last phase lasts; of six characters none is drawn
        tasks = curriculum.draw(3)
        assert lengths(tasks) == [5] * 3
        curriculum.observe(answered(tasks))
    assert curriculum.metrics()["phase"] == 2


def test_tasks_of_earlier_phases_return_in_later_ones():
    curriculum = build(every_steps=1)
    first = curriculum.draw(4)
    assert lengths(first) == [4] * 4  # nothing is earlier than the first phase
    curriculum.observe(answered(first))
    second = curriculum.draw(5)
    assert lengths(second) == [4] * 2 + [5] * 3  # half of five, rounded down
    assert {task.id for task in second[:2]} <= {task.id for task in first}
    curriculum.observe(answered(second))
    assert curriculum.metrics()["returned/tasks"] == 2


def test_the_harder_a_task_was_the_likelier_it_returns():
    assert [difficulty(reward, 16) for reward in (1.0, 0.25, 0.01, 0.0)] == [1, 4, 16, 16]
    returned = []
    for seed in range(300):
        curriculum = build(seed, every_steps=1)
        tasks = curriculum.draw(2)
        curriculum.observe(answered(tasks[:1], 1, of=4) + answered(tasks[1:], 4, of=4))
        returned += [task.id == tasks[0].id for task in curriculum.draw(2)[:1]]
    # Weights 4 and 1.
    assert sum(returned) / 300 == pytest.approx(0.8, abs=0.07)


def test_what_returned_is_judged_by_its_latest_group():
    curriculum = build(every_steps=1)
    tasks = curriculum.draw(1)
    curriculum.observe(answered(tasks, 0))
    back = curriculum.draw(2)[:1]
    assert [task.id for task in back] == [tasks[0].id]
    curriculum.observe(answered(back, 2))
    assert curriculum.seen[back[0].id] == (int(back[0].id), 0, 1.0)


def test_text_in_parts_counts_too():
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    assert prompt_length([{"role": "user", "content": parts}, {"role": "user", "content": "de"}]) == 5


def test_a_resumed_run_draws_what_the_first_would_have():
    first = build(1)
    for _ in range(3):
        first.observe(answered(first.draw(4)))
    assert_resumes(first, build(2), answered([Task("7", (), "")]))


@pytest.mark.parametrize(
    ("given", "said"), [([], "lengths"), ([5, 5], r"got \[5, 5\]; allowed: positive numbers"), ([0, 5], "positive")]
)
def test_limits_that_do_not_increase_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        build(lengths=given)


def test_phases_without_a_task_are_refused():
    with pytest.raises(RecipeError, match="no task has a prompt of 7 to 9 characters, which phase 2 draws"):
        Phases(lengths=(6, 9)).check_tasks(Source(120))
