"""One part of the tasks' own grade as a reward."""

import asyncio

from leaves import Source, leaf, task

from lyceum.core.types import Grade
from lyceum.reward.base import each
from lyceum.reward.task import TaskReward


def paid(parts, **settings):
    source = Source(task(), each(lambda one, node: Grade(1.0, True, parts=parts)))
    (grade,) = asyncio.run(TaskReward(part="action", **settings).build(source)(source.one, [leaf("x")], None))
    return grade


def test_a_part_is_paid_in_the_place_of_the_outcome():
    assert paid({"action": 0.25, "target": 1.0}).outcome == 0.25


def test_a_grade_without_the_part_is_ungraded_unless_the_recipe_says_what_it_is_paid():
    assert "gives no part 'action'; it gives: answer" in paid({"answer": 1.0}).reason
    assert paid({"answer": 1.0}, absent=0).outcome == 0
    assert paid({"action": 0.25}, absent=0).outcome == 0.25
