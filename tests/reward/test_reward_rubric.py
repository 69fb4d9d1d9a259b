import asyncio
import math

import pytest
from fake_task import NO_MODEL
from judges import JudgeContext, Server, says
from leaves import leaf
from pydantic import ValidationError

from lyceum.core.types import Task
from lyceum.reward.base import combine
from lyceum.reward.criteria import is_met, is_rubric
from lyceum.reward.rubric import Rubric, rubric_score, saturated_score
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
    with pytest.raises(RecipeError, match=r"'is polite' of task '1' has no rule .*reward.judge"):
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
        ([{"criterion": "c", "points": 1, "veto": True, "dimension": "d"}], True),
        ([{"criterion": "c", "points": 1, "veto": "yes"}], False),
        ([{"criterion": "c", "points": 1, "dimension": 3}], False),
        ([{"criterion": "c", "points": 1, "contains": 3}], False),
        ("c", False),
    ],
)
def test_a_datasets_cell_is_a_rubric_or_not(cell, fits):
    assert is_rubric(cell) == fits


# Vetoes, saturation, judges -------------------------------------------------------------------------------------------


def criteria(*many):
    return [{"criterion": f"c{i}", **one} for i, one in enumerate(many)]


def rubric_grade(text, of, **settings):
    source = Source(of)
    grader = combine([Rubric(**settings)], source)
    return asyncio.run(grader(source[0], [leaf(text)], NO_MODEL))[0]


def test_a_violated_veto_costs_all_points():
    # What should be there and is not, and what should not be there and is.
    of = criteria({"points": 3, "contains": "a"}, {"points": 1, "contains": "b", "veto": True})
    of += criteria({"points": -1, "contains": "!", "veto": True})
    assert rubric_grade("ab", of).outcome == 1.0
    assert rubric_grade("b", of).outcome == 0.25
    vetoed = rubric_grade("a", of)
    assert (vetoed.outcome, vetoed.parts["rubric/points"], vetoed.parts["rubric/vetoed"]) == (0.0, 0.75, 1.0)
    assert rubric_grade("ab!", of).outcome == 0.0
    assert rubric_grade("ab!", of, vetoed=-1).outcome == -1.0


def test_a_dimension_that_is_nearly_full_earns_little_more_and_balance_earns_most():
    # Two dimensions of two points each, rate 2: g(1/2) = (1 - e^-1) / (1 - e^-2) = 0.7311, g(1) = 1.
    half = (1 - math.exp(-1)) / (1 - math.exp(-2))
    points, dimension = [1, 1, 1, 1], ["x", "x", "y", "y"]

    def score(*met):
        return saturated_score(points, met, dimension, 2)

    assert score(True, True, False, False) == pytest.approx(1 / 2)  # all of one
    assert score(True, False, True, False) == pytest.approx(half)  # half of each: more, for as many points
    assert score(True, True, True, True) == pytest.approx(1)
    assert saturated_score(points, [True, False, True, True], dimension, 1e-6) == pytest.approx(3 / 4, abs=1e-5)


def test_what_should_not_be_there_does_not_saturate():
    # Alone in its dimension it takes off its points, as without saturation: (4 g(1) - 2) / 4
    assert saturated_score([4, -2], [True, True], ["x", "y"], 3) == pytest.approx(0.5)
    # In a dimension with points of its own: (1 - 3) / 1
    assert saturated_score([1, -3], [True, True], ["x", "x"], 3) == pytest.approx(-2)


def test_without_saturation_and_vetoes_a_rubric_is_what_it_was():
    one = [{"criterion": "c", "points": 1, "contains": "x", "dimension": "d"}]
    assert rubric_grade("x", one).parts == {"rubric": 1.0}
    text = "37+8=45-2=43#43"
    source = Chain().build("train", 0)
    [plain, saturated] = [
        asyncio.run(combine([Rubric(saturation=rate)], source)(CHAIN, [leaf(text)], NO_MODEL))[0] for rate in (0, 3)
    ]
    # One of three steps, not the answer: 3 g(1/3) / 6 with g(1/3) = (1 - e^-1) / (1 - e^-3)
    assert plain.outcome == pytest.approx(1 / 6)
    assert saturated.outcome == pytest.approx(3 * (1 - math.exp(-1)) / (1 - math.exp(-3)) / 6)


POLITE = {"criterion": "is polite", "points": 1}
SHORT = {"criterion": "is short", "points": 1, "veto": True}


def judged(reply, text="yes", of=(POLITE, SHORT), **judge):
    source, context = Source(list(of)), JudgeContext(reply if callable(reply) else lambda _: reply)
    grader = combine([Rubric(judge=judge)], source)
    [grade] = asyncio.run(grader(source[0], [leaf(text)], context))
    return grade, grader, context


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("The first is met.\nmet: 1, 2", 1.0),
        ("met: 1", 0.0),  # the second one has a veto
        ("**met: 2**", 0.5),
        ("met: none", 0.0),
        ("met: 3", None),
        ("met: 1 and 2", None),
        ("met: 1, 2\nI am sure.", None),
        ("", None),
    ],
)
def test_criteria_without_a_rule_are_put_to_the_judge(reply, outcome):
    grade, grader, context = judged(reply)
    assert grade.outcome == outcome
    assert "1. is polite\n2. is short" in context.asked[0]
    assert grader.metrics()["rubric/judge/unread"] == (outcome is None)


def test_rules_are_not_asked_of_the_judge():
    rule = {"criterion": "ends", "points": 2, "ends": "yes"}
    grade, _, context = judged("met: none", of=(rule, POLITE))
    assert grade.outcome == pytest.approx(2 / 3)
    assert "1. is polite" in context.asked[0]
    assert "ends" not in context.asked[0].partition("<data")[0]
    assert judged("met: none", of=(rule,))[2].asked == []


def test_most_votes_decide_and_a_tie_is_not_met():
    grade, _, _ = judged(lambda _: ["met: 1, 2", "met: 2", "met: 2", "met: 1, 2"], votes=4, temperature=1)
    assert grade.outcome == 0.5
    grade, _, _ = judged(lambda _: ["met: 1, 2", "broken", "met: 1, 2"], votes=3, temperature=1)
    assert grade.outcome == 1.0


def test_a_judge_in_turns_reads_the_chat_and_goes_on_after_the_label():
    grade, _, context = judged(" 1, 2", form="turns")
    assert grade.outcome == 1.0
    assert context.asked == ["assistant: yes\nuser: 1. is polite\n2. is short\nmet:"]


def test_a_judge_that_fails_leaves_a_completion_ungraded():
    def fails(_):
        raise ConnectionError("nobody there")

    grade, _, _ = judged(fails)
    assert (grade.outcome, "nobody there" in grade.reason) == (None, True)


def test_criteria_of_all_tasks_stand_beside_each_ones_own():
    one = [{"criterion": "c", "points": 1, "contains": "x"}]
    shared = [{"criterion": "no list", "contains": ";", "points": -1, "veto": True}]
    assert [rubric_grade(text, one, criteria=shared).outcome for text in ("x", "x;", "")] == [1.0, 0.0, 0.0]
    assert rubric_grade("y", [], criteria=[{"criterion": "c", "contains": "y"}]).outcome == 1.0
    with pytest.raises(ValidationError, match="contains and ends"):
        Rubric(criteria=[{"criterion": "c", "contains": "y", "ends": "y"}])


def test_a_judge_behind_an_endpoint_needs_no_model_of_the_run_and_keeps_its_counts():
    with Server(says("met: 1, 2")) as server:
        part = Rubric(judge={"endpoint": {"url": server.url, "model": "m"}})
        source = Source([POLITE, SHORT])
        grader = combine([part], source)
        assert not grader.asks_model
        [grade] = asyncio.run(grader(source[0], [leaf("yes")], JudgeContext()))
        assert grade.outcome == 1.0
        assert grader.metrics()["rubric/judge/calls"] == 1
        other = combine([part], source)
        other.load_state_dict(grader.state_dict())
        assert other.metrics() == grader.metrics()
    assert combine([Rubric(judge={})], source).asks_model
