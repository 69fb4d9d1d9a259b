import asyncio

import pytest
from fake_task import NO_MODEL
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.reward._occurrences import Occurrences
from lyceum.reward.base import combine
from lyceum.reward.task import TaskReward
from lyceum.tasks.chain import Chain


def graded(*texts, weight=0.0):
    source = Chain(levels=(1,), size=1).build("train", 0)
    task = source[0]
    answer = f"#{task.answer}"
    leaves = [Node(Node(None, [1], Origin.PROMPT), [1], Origin.POLICY, text=text + answer) for text in texts]
    leaves.append(Node(Node(None, [1], Origin.PROMPT), [1], Origin.POLICY, text="?#wrong"))
    reward = combine((TaskReward(weight=1.0), Occurrences(text="?", weight=weight)), source)

    async def grade():
        return await reward(task, leaves, NO_MODEL)

    return asyncio.run(grade())


def test_a_text_is_counted_and_weighs_nothing_unless_asked():
    none, two, wrong = graded("1+1=2", "1+1=3?1+1=4?")
    assert [grade.outcome for grade in (none, two, wrong)] == [1, 1, 0]
    assert [grade.parts["occurrences"] for grade in (none, two, wrong)] == [0, 2, 1]
    assert [grade.outcome for grade in graded("1+1=2", "1+1=3?1+1=4?", weight=-0.1)] == pytest.approx([1, 0.8, -0.1])


def test_accuracy_is_recorded_apart_for_completions_with_and_without_it():
    none, two, wrong = graded("1+1=2", "1+1=3?1+1=4?")
    assert none.parts["occurrences/right_without"] == 1
    assert two.parts["occurrences/right_with"] == 1
    assert wrong.parts["occurrences/right_with"] == 0
    assert "occurrences/right_with" not in none.parts, "or the mean over completions with it would count this one"


def test_an_empty_text_is_refused():
    with pytest.raises(ValidationError, match="at least 1 character"):
        Occurrences(text="")
