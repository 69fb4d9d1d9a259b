"""A judge that lists the steps with a question mark in them."""

import asyncio
import re

import pytest
from judges import JudgeContext
from leaves import Source, task
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.tp_grpo.reward_judged_steps import JudgedSteps
from lyceum.reward.base import combine
from lyceum.reward.exact import Exact
from lyceum.reward.scorer.judging import JudgeModel

STEP = {"by": "marker", "markers": (".",)}
SURE = "one.two?.42"


def leaf(text):
    return Node.prompt([81], "Q").add(list(map(ord, text)), Origin.POLICY, text)


def doubted(prompt):
    listed = [number for number, text in re.findall(r"\[(\d+)\] (.*)", prompt) if "?" in text]
    return f"I look.\nsteps: {', '.join(listed) or 'none'}"


def judged(text, correct, says=doubted, **settings):
    context = JudgeContext(says)
    grader = JudgedSteps(step=STEP, **settings).build(Source(task()))
    [grade] = asyncio.run(grader(task(), [leaf(text)], context, [correct]))
    return grade, context.asked, grader


def test_what_is_listed_is_wrong_in_a_correct_solution_and_all_that_is_spared_in_an_incorrect_one():
    right, asked, _ = judged(SURE, True)
    assert [(SURE[a:b], reward) for a, b, reward in right.steps] == [("one.", 1.0), ("two?.", 0.0), ("42", 1.0)]
    assert (right.outcome, right.parts) == (0, {"steps": 3, "read": 1, "wrong": 1})
    assert "[2] two?." in asked[0]
    assert "The answer is correct" in asked[0]
    wrong, asked, _ = judged(SURE, False)
    assert [step.reward for step in wrong.steps] == [0, 1, 0]
    assert wrong.parts["unused"] == 1
    assert "The answer is incorrect" in asked[0]


def test_a_step_is_listed_where_more_than_half_of_the_readable_votes_list_it():
    def split(prompt):
        return ["steps: 1, 2", "steps: 2", "steps: none", "steps: 9"]

    grade, _, grader = judged(SURE, True, split, judge={"votes": 4, "temperature": 1.0})
    assert [step.reward for step in grade.steps] == [1, 0, 1]
    assert grader.metrics() == {"judge/asked": 4, "judge/unread": 1}


def test_a_solution_that_no_reply_can_be_read_of_has_no_judged_step_and_keeps_its_outcome():
    grade, _, grader = judged(SURE, True, lambda _: "no idea")
    assert (grade.outcome, grade.steps, grade.parts["read"]) == (0, (), 0)
    assert grader.metrics()["judge/unread"] == 1


def test_it_is_told_the_verdicts_of_the_other_parts():
    one, context = task("42"), JudgeContext(doubted)
    grader = combine([Exact(extract={"after": "is "}), JudgedSteps()], Source(one))
    texts = ["a\nb?\nis 42", "a\nb?\nis 43"]
    found = asyncio.run(grader(one, [leaf(text) for text in texts], context))
    assert [[step.reward for step in grade.steps] for grade in found] == [[1, 0, 1], [0, 1, 0]]
    assert [grade.outcome for grade in found] == [1, 0]
    unknown, *_ = judged(SURE, None)
    assert unknown.reason == "no part says whether the answer is correct"


def test_in_turns_the_solution_is_shown_as_it_is():
    _, asked, _ = judged(SURE, True, lambda _: "2", judge=JudgeModel(form="turns"), corrected="corrected")
    assert asked[0].endswith(f"assistant: {SURE}\nuser: corrected\nsteps:")


def test_steps_that_not_every_text_can_be_cut_by_are_refused():
    with pytest.raises(ValidationError, match=r"step.by: got 'entropy'"):
        JudgedSteps(step={"by": "entropy"})
    assert judged("", True)[0].parts == {"steps": 0}
