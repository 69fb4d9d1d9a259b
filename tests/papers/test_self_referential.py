import math

import pytest
from leaves import Source, grades, leaf, task

from lyceum.core.settings import Composition
from lyceum.core.types import Grade
from lyceum.papers.self_referential.reward_self_reference import SelfReference, progress
from lyceum.reward.base import each, verdict
from lyceum.reward.task import TaskReward
from lyceum.rollout.flat import Flat


def graded(*texts, **settings):
    """Correct are completions that end with #42; those with ? nobody judges."""

    def own(_, end):
        return Grade.ungraded("lost") if "?" in end.completion else verdict(end.completion.endswith("#42"))

    parts = [TaskReward(), SelfReference(**settings)]
    return grades(parts, task(), *map(leaf, texts), source=Source(task(), each(own)))


def test_failures_are_paid_by_their_distance_from_the_nearest_success():
    # In common with 40+2=42#42, of 10 characters: 8 of 10, 20 % apart; nothing, 100 % apart; 6 of 10, 40 % apart, which
    # is a quarter of the way: sigmoid(10 (1/2 - 1/4)). Nearest and farthest: sigmoid(5) and sigmoid(-5); times 0.6.
    found = graded("40+2=42#42", "40+2=42#99", "xxxxxxxxxx", "40+2=4x9xx")
    sigmoid = [1 / (1 + math.exp(-x)) for x in (5, -5, 2.5)]
    assert [grade.outcome for grade in found] == pytest.approx([1.0, *(0.6 * value for value in sigmoid)])
    assert [grade.parts.get("self-reference/distance") for grade in found] == pytest.approx([None, 0.2, 1.0, 0.4])


def test_the_nearest_of_several_successes_counts():
    found = graded("aaaa#42", "bbbb#42", "bbbb#41", "aabb#41")
    assert [grade.parts.get("self-reference/distance") for grade in found[2:]] == pytest.approx([1 / 7, 3 / 7])


def test_without_a_success_failures_earn_nothing_and_what_nobody_judged_is_ungraded():
    assert [grade.outcome for grade in graded("1#1", "2#2")] == [0.0, 0.0]
    assert [grade.outcome for grade in graded("1#42", "??")] == [1.0, None]


def test_failures_as_far_as_each_other_earn_half():
    assert progress([0.3, 0.3], 10) == [0.5, 0.5]
    assert progress([], 10) == []
    assert progress([0.0, 1.0], 1000) == pytest.approx([1.0, 0.0])


def test_one_sample_a_task_is_refused():
    assert "rollout.samples: got 1" in SelfReference().conflicts(Composition(rollout=Flat(samples=1)))[0]
