import asyncio

import pytest
from fake_task import NO_MODEL
from leaves import leaf

from lyceum.core.rubric import is_met, is_rubric
from lyceum.core.types import Task
from lyceum.reward.base import combine
from lyceum.reward.rubric import Rubric, rubric_score
from lyceum.reward.task import TaskReward
from lyceum.tasks import base as tasks
from lyceum.tasks.chain import Chain, make_task
from lyceum.utils.errors import RecipeError

CHAIN = make_task("t", 37, [8, -2, 5])  # 37+8=45-2=43+5=48#48


class Source(tasks.Source):
    def __init__(self, *rubrics):
        self.tasks = [Task(str(i), (), columns={"rubric": rubric}) for i, rubric in enumerate(rubrics)]

    def __len__(self):
        return len(self.tasks)

    def __getitem__(self, index):
        return self.tasks[index]


def test_points_met_over_points_to_be_had():
    # 2 of 2 + 1, and 1 off for what should not be there: (2 - 1) / 3. The points to be had leave out the negative.
    assert rubric_score([2, 1, -1], [True, False, True]) == pytest.approx(1 / 3)
    assert rubric_score([2, 1, -1], [True, True, False]) == 1
    # Not cut at 0: what should not be there outweighs the rest.
    assert rubric_score([1, -3], [True, True]) == -2


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        ("37+8=45-2=43+5=48#48", 6 / 6),
        ("37+8=45-2=43+5=49#49", 2 / 6),
        ("37+8=46-2=44+5=49#49", 0),
        ("37+8=45#45", 0 / 6),  # the step is right, but the sign of the next one does not follow
        ("37+8=45-2=43#43", 1 / 6),
        ("37+8=4-2=43+5=48#48", 5 / 6),
        ("#48", 3 / 6),
        ("37+8=45-2=43+5=48#480", 3 / 6),  # the answer ends the completion
    ],
)
def test_a_chain_has_a_point_for_each_step_and_as_many_for_the_answer(completion, score):
    [grade] = asyncio.run(Rubric().build(Chain().build("train", 0))(CHAIN, [leaf(completion)], NO_MODEL))
    assert grade.outcome == pytest.approx(score)
    assert grade.correct is None, "a share of points is neither right nor wrong"


def test_beside_the_tasks_own_verdict_the_outcome_is_the_rubrics():
    source = Chain().build("train", 0)
    grader = combine([TaskReward(weight=0), Rubric()], source)
    right, half = asyncio.run(grader(CHAIN, [leaf("37+8=45-2=43+5=48#48"), leaf("#48")], NO_MODEL))
    assert (right.outcome, right.correct) == (1.0, True)
    assert (half.outcome, half.correct) == (0.5, True)


def test_criteria_are_met_by_what_is_contained_or_by_how_it_ends():
    assert is_met({"contains": "b"}, "abc")
    assert not is_met({"contains": "x"}, "abc")
    assert is_met({"contains": None, "ends": "c"}, "abc \n")
    assert not is_met({"ends": "b"}, "abc")


def test_what_no_rule_can_check_is_refused_before_a_model_is_loaded():
    judged = [{"criterion": "is polite", "points": 1}]
    with pytest.raises(RecipeError, match=r"'is polite' of task '1' has no rule .*reward kind 'function'"):
        Rubric().build(Source([{"criterion": "c", "points": 1, "contains": "x"}], judged))
    with pytest.raises(RecipeError, match=r"no rule"):
        Rubric().build(Source([{"criterion": "c", "points": 1, "contains": "x", "ends": "y"}]))
    with pytest.raises(RecipeError, match=r"task '0' has no criteria"):
        Rubric().build(Source([]))


def test_a_rubric_without_points_to_be_had_grades_nothing():
    rubric = [{"criterion": "c", "points": -1, "contains": "x"}]
    source = Source(rubric)
    [grade] = asyncio.run(Rubric().build(source)(source[0], [leaf("abc")], NO_MODEL))
    assert grade.outcome is None
    assert "no criterion with points above 0" in grade.reason


@pytest.mark.parametrize(
    ("cell", "fits"),
    [
        ([{"criterion": "c", "points": 1}], True),
        ([{"criterion": "c", "points": 1.5, "contains": "x", "ends": None}], True),  # parquet fills with null
        ([], True),
        ([{"criterion": "c"}], False),
        ([{"criterion": "c", "points": "1"}], False),
        ([{"criterion": "c", "points": 1, "contains": 3}], False),
        ("c", False),
    ],
)
def test_a_datasets_cell_is_a_rubric_or_not(cell, fits):
    assert is_rubric(cell) == fits
