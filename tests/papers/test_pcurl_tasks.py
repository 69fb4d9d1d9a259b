import asyncio
import random
from dataclasses import replace

import pytest
from fake_task import NO_MODEL
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.pcurl.tasks_signs import Signs, completion_text, make_operations, make_task


def right(source, task, text):
    leaf = Node(None, [0], Origin.PROMPT).add(list(range(len(text))), Origin.POLICY, text)
    (grade,) = asyncio.run(source.grader()(task, [leaf], NO_MODEL))
    return grade.correct


@pytest.mark.parametrize("start", range(10))
def test_one_sign_alone_keeps_every_number_below_ten(start):
    at = start
    for operation in make_operations(random.Random(start), start, 32):
        assert 5 <= abs(operation) <= 9
        assert 0 <= at + operation < 10
        assert not 0 <= at - operation < 10
        at += operation


def test_a_wrong_sign_ends_a_demonstration_at_once_or_after_all_operations():
    never = Signs(operations=3, levels=(3,), right=0)
    task = never.build("train", 0)[0]
    first, *_ = task.columns["solution"].split("\n")
    shown = task.columns["demonstration"]
    assert shown.count("=") == 1
    assert int(shown.partition("#")[2]) >= 10
    assert shown.partition("=")[0] != first.partition("=")[0]
    late = never.model_copy(update={"shows": "last"}).build("train", 0)[0]
    assert late.messages == task.messages
    assert late.columns["demonstration"].count("=") == 3
    assert (
        never.model_copy(update={"right": 1.0}).build("train", 0)[0].columns["demonstration"]
        == late.columns["solution"]
    )


def test_signs_that_are_not_missing_are_given_and_demonstrated():
    task = make_task("t", random.Random(1), 0, Signs(operations=4, levels=(0,), right=0))
    assert "?" not in task.messages[0]["content"]
    assert task.columns["demonstration"] == task.columns["solution"]


def test_only_the_whole_chain_is_correct():
    # 3 + 5 = 8, - 8 = 0, + 6 = 6
    text = completion_text(3, [5, -8, 6], [8, 0, 6])
    assert text == "3+5=8\n-8=0\n+6=6#6"
    source = Signs().build("train", 0)
    task = replace(source[0], columns={"solution": text})
    assert right(source, task, text)
    assert not right(source, task, "3#6")
    assert not right(source, task, "3+5=8\n-8=0\n+6=6")


def test_no_problem_is_in_both_splits():
    train, heldout = (Signs(operations=2, levels=(2,)).build(split, 0) for split in ("train", "heldout"))
    prompts = [{source[i].messages[0]["content"] for i in range(100)} for source in (train, heldout)]
    assert not prompts[0] & prompts[1]


def test_more_missing_signs_than_operations_are_refused():
    with pytest.raises(ValidationError, match="levels: got"):
        Signs(operations=3, levels=(4,))
