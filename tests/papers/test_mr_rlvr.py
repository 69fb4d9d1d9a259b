import asyncio

import pytest
from fake_task import NO_MODEL
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Origin, Task
from lyceum.papers.mr_rlvr.tasks_masked_and_reordered import MaskedAndReordered, MaskedAndReorderedSource, grade
from lyceum.utils.errors import RecipeError

CHAINS = {"kind": "chain", "levels": [5]}


def made(**settings):
    of = MaskedAndReordered.model_validate({"tasks": CHAINS, "masked": "{steps}", "reordered": "?{steps}"} | settings)
    return of.build("train", 0)


def graded(source: MaskedAndReorderedSource, task: Task, text: str):
    leaf = Node(None, [0], Origin.PROMPT).add(list(range(len(text))), Origin.POLICY, text)
    (found,) = asyncio.run(source.grader()(task, [leaf], NO_MODEL))
    return found


def test_masked_steps_are_the_answer_and_the_others_are_shown():
    source = made(reorder_share=0)
    task, chain = source[3], source.source[3]
    *steps, _ = map(str, chain.columns["steps"])  # four that a hint may give, and the answer
    shown = task.columns["shown"]
    assert task.messages[0]["content"] == f"{chain.messages[0]['content'][:-1]}|{','.join(shown)}="
    assert shown.count("_") == 2  # half of four
    assert task.answer.split(",") == [step for step, text in zip(steps, shown, strict=True) if text == "_"]
    assert graded(source, task, task.columns["demonstration"]).correct
    first, second = task.answer.split(",")
    assert graded(source, task, f"#{first},{int(second) + 1}").outcome == 0.5
    # A right step in the wrong place, and one more than was asked for, are no guess worth a part.
    assert graded(source, task, f"#{first}").outcome == 0
    assert graded(source, task, f"{first},{second}").answered is False


def test_places_put_the_shown_steps_in_order():
    source = made(reorder_share=1)
    task = source[0]
    *steps, _ = map(str, source.source[0].columns["steps"])
    order = [int(place) - 1 for place in task.answer.split(",")]
    assert [task.columns["shown"][place] for place in order] == steps
    assert order != sorted(order)
    assert graded(source, task, f"#{task.answer}").outcome == 1
    assert graded(source, task, "#1,1,1,1").outcome == 0  # one place over and over would pay for each of its steps
    assert set(graded(source, task, f"#{task.answer}").parts) == {"reordered"}


def test_a_share_of_the_places_is_paid_and_equal_steps_are_alike():
    task = Task("t", (), "2,3,1", {"expected": ["2", "3", "1"], "shown": ["7", "7", "5"]}, provenance="reordered")

    def outcome(text):
        return grade(task, Node(None, [0], Origin.PROMPT).add([1], Origin.POLICY, text), MaskedAndReordered()).outcome

    assert outcome("#1, 3, 2") == 1  # 7, 5, 7 as well
    assert outcome("#3,1,2") == pytest.approx(1 / 3)  # 5, 7, 7 for 7, 5, 7: the last alone


def test_solutions_of_texts_are_made_into_tasks_too():
    source = made(tasks={"kind": "logic", "levels": [4]}, reorder_share=0, masked="{steps}!")
    task = source[0]
    assert task.messages[0]["content"].endswith("!")
    assert "_" in task.messages[0]["content"]
    assert graded(source, task, f"thus #{task.answer}").correct


def test_solutions_of_one_step_and_templates_without_steps_are_refused():
    with pytest.raises(RecipeError, match="has 1 steps before its last"):
        made(tasks={"kind": "chain", "levels": [2]})[0]
    with pytest.raises(ValidationError, match=r"allowed: a text with \{steps\}"):
        made(masked="fill in")
    with pytest.raises(ValidationError, match=r"allowed: a text with \{answer\}"):
        made(demonstration="{solution}")
