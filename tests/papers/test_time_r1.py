"""The reward ``distance``, on times worked by hand."""

import asyncio
import math
from types import SimpleNamespace

import pytest
from leaves import Source, leaf, task
from pydantic import ValidationError

from lyceum.papers.time_r1.reward_distance import Distance, Lenient, distance
from lyceum.utils.errors import RecipeError

LENIENT = Lenient(hard_from=5, start=0.07, end=0.1, steps=50)


def graded(part, one, *texts, step=0):
    context = SimpleNamespace(step=step)
    return asyncio.run(part.build(Source(one))(one, [leaf(text) for text in texts], context))


def test_the_reward_halves_every_seven_months_or_so():
    part = Distance(unit="month")
    grades = graded(part, task("2024-03"), "2024-03", "It was 2023-12.", "2025-05, no, 2025-04", "May", "2024-13")
    assert [grade.outcome for grade in grades] == pytest.approx([1, math.exp(-0.3), math.exp(-1.3), 0, 0])
    assert [grade.correct for grade in grades] == [True, False, False, False, False]
    assert grades[1].parts == {"alpha": 0.1, "distance": 3}
    assert "distance" not in grades[3].parts, "an answer that is no time is at no distance"


def test_hard_tasks_are_graded_leniently_at_first_and_strictly_in_the_end():
    part = Distance(lenient=LENIENT)
    # Halfway through 50 steps: 0.085; from there on 0.1, as easy tasks have all the time.
    for step, alpha in ((0, 0.07), (25, 0.085), (50, 0.1), (999, 0.1)):
        (grade,) = graded(part, task("50", level=5), "40", step=step)
        assert grade.outcome == pytest.approx(math.exp(-10 * alpha))
        (easy,) = graded(part, task("50", level=4), "40", step=step)
        assert easy.outcome == pytest.approx(math.exp(-1))


def test_around_a_circle_the_shorter_way_counts():
    assert distance(1, 98, 100) == 3
    assert distance(12, 1, 12) == 1
    assert distance(1, 98, None) == 97
    (grade,) = graded(Distance(period=100), task("98"), "1")
    assert grade.outcome == pytest.approx(math.exp(-0.3))


def test_numbers_that_no_float_can_hold_are_no_answers():
    grades = graded(Distance(), task("5"), "9" * 99, "1e9999", "")
    assert [grade.outcome for grade in grades] == [0, 0, 0]


@pytest.mark.parametrize(
    ("part", "one", "line"),
    [
        (Distance(unit="month"), task("42"), "reward.distance.unit: got 'month'.*'42'.*allowed"),
        (Distance(), task("soon"), "reward.distance.unit: got 'number'.*'soon'"),
        (Distance(lenient=LENIENT), task("42"), "reward.distance.lenient.column: got 'level'.*allowed"),
    ],
)
def test_tasks_that_it_cannot_place_are_refused(part, one, line):
    with pytest.raises(RecipeError, match=line):
        part.check_tasks(Source(one))


def test_hard_tasks_cannot_be_graded_more_strictly_than_easy_ones():
    with pytest.raises(ValidationError, match="allowed: at most that"):
        Distance(alpha=0.05, lenient=LENIENT)
