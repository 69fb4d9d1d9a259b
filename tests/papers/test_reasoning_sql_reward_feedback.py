"""A judge's points for incorrect completions, beside the reference (Reasoning-SQL)."""

from __future__ import annotations

import asyncio

import pytest
from judges import JudgeContext
from leaves import Source, leaf, task

from lyceum.papers.reasoning_sql.reward_feedback import Feedback
from lyceum.reward.base import combine
from lyceum.reward.exact import Exact


def outcomes(answer, one, *texts, **settings):
    context = JudgeContext(answer)
    grader = combine([Exact(weight=3), Feedback(weight=0.5, **settings)], Source(one))
    grades = asyncio.run(grader(one, [leaf(text) for text in texts], context))
    return [grade.outcome for grade in grades], context.asked, grader.metrics(), grades


def test_only_incorrect_completions_are_asked_about_and_none_earns_more_than_a_correct_one():
    # 3 * 1 + 0.5 * 1; 3 * 0 + 0.5 * 2/3; 3 * 0 + 0.5 * 3/3.
    def answer(prompt):
        return "points: 2" if "near" in prompt else "points: 3"

    found, asked, metrics, grades = outcomes(answer, task("42"), "42", "near", "nearly", "wrong", most_points=3)
    assert found == [3.5, pytest.approx(1 / 3), pytest.approx(1 / 3), 0.5]
    assert len(asked) == metrics["feedback/judge/asked"] == 3
    assert [grade.parts["feedback/asked"] for grade in grades] == [0, 1, 1, 1]
    assert all("correct answer:\n42" in prompt for prompt in asked)


def test_votes_are_averaged_and_a_judge_without_points_leaves_it_ungraded():
    votes = {"judge": {"votes": 2, "temperature": 1}, "most_points": 4}
    found, *_ = outcomes(lambda _: ["points: 1", "points: 3"], task("42"), "41", **votes)
    assert found == [0.25]  # 0.5 * (1 + 3) / 2 / 4
    found, _, metrics, grades = outcomes(lambda _: "points: 11", task("42"), "41", "42")
    assert found == [None, 3.5]
    assert metrics["feedback/judge/unread"] == 1
    assert "no reply of the judge ends in points" in str(grades[0].reason)
