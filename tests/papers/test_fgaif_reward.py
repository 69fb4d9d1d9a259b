"""A judge that checks sums: it marks a segment without one 0, and one with a wrong sum -."""

import asyncio
import re

import pytest
from judges import JudgeContext
from leaves import Source, task
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.fgaif.reward_segment_errors import SegmentErrors, marks_of

STEP = {"by": "marker", "markers": (".",)}
TEXT = "so 1+1=2.then 2+2=5.done"


def sums(prompt):
    segments = re.findall(r"\[\d+\] (.*)", prompt)
    found = [re.search(r"(\d)\+(\d)=(\d)", segment) for segment in segments]
    marks = ["0" if each is None else "+" if int(each[1]) + int(each[2]) == int(each[3]) else "-" for each in found]
    return f"I add.\nsegments: {' '.join(marks)}"


def judged(text, says=sums, **settings):
    context = JudgeContext(says)
    leaf = Node.prompt([81], "Q").add(list(map(ord, text)), Origin.POLICY, text)
    grader = SegmentErrors(**{"error": "a sum", "step": STEP} | settings).build(Source(task()))
    [grade] = asyncio.run(grader(task(), [leaf], context))
    return grade, context.asked, grader


def test_a_segment_is_paid_by_its_mark():
    grade, asked, _ = judged(TEXT)
    assert [(TEXT[a:b], reward) for a, b, reward in grade.steps] == [
        ("so 1+1=2.", 1),
        ("then 2+2=5.", 0),
        ("done", 0.5),
    ]
    assert (grade.outcome, grade.parts) == (0, {"segments": 3, "read": 1, "right": 1, "wrong": 1})
    assert "of this kind alone: a sum." in asked[0]
    assert "[2] then 2+2=5." in asked[0]


def test_votes_are_averaged_and_those_that_cannot_be_read_have_none():
    replies = ["segments: +-0", "segments: ++0", "segments: ++", "segments: none"]
    grade, _, grader = judged(TEXT, lambda _: replies, judge={"votes": 4, "temperature": 1.0})
    assert [step.reward for step in grade.steps] == [1, 0.5, 0.5]
    assert grader.metrics() == {"judge/asked": 4, "judge/unread": 2}


def test_without_a_readable_reply_no_segment_is_judged():
    grade, _, _ = judged(TEXT, lambda _: "segments: all good")
    assert (grade.outcome, grade.steps, grade.parts) == (0, (), {"segments": 3, "read": 0})


def test_in_turns_the_kind_of_error_is_all_that_is_said():
    _, asked, _ = judged(TEXT, lambda _: "+-0", judge={"form": "turns"}, error="result", ask="{error}")
    assert asked[0].endswith(f"assistant: {TEXT}\nuser: result\nsegments:")


def test_marks_are_as_many_as_segments_or_nothing():
    assert marks_of("+ 0-", 3) == [1, 0.5, 0]
    assert marks_of("+0-", 2) is None
    assert marks_of("+?-", 3) is None
    for wrong in ({"error": ""}, {"error": "a", "ask": "Well?"}, {"error": "a", "step": {"by": "entropy"}}):
        with pytest.raises(ValidationError):
            SegmentErrors.model_validate(wrong)
