import pytest

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.tasks.chain import make_task as chain
from lyceum.tasks.chain_compare import ChainCompare, grade

SOURCE = ChainCompare().build("train", 0)
# 37+8 = 45, -2 = 43: below 50
TASK = chain("t", 37, [8, -2])
TASK = TASK.__class__(TASK.id, TASK.messages, "no", {**TASK.columns, "threshold": 50})


def correct(text, finish="stop"):
    leaf = Node(None, [0], Origin.PROMPT).add([1], Origin.POLICY, text)
    leaf.finish = finish
    return grade(TASK, leaf).correct


def sound(text):
    return [step.reward for step in SOURCE.judged_steps(TASK, text)]


def test_any_number_on_the_results_side_is_correct_and_nothing_else():
    assert correct("37+8=45-2=43#43")
    assert correct("37+8=44-2=42#42")
    assert not correct("37+8=55-2=53#53")
    assert not any(map(correct, ("37+8=45-2=43", "37+8=45-2=43#no", "#-3", "#149", "#²", "#" + "1" * 5000)))
    assert not correct("37+8=45-2=43#43", finish="length")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("37+8=45-2=43#43", [1, 1, 1]),
        ("37+8=44-2=42#42", [0, 1, 1]),  # the wrong step stands: a correct answer that rests on it
        ("37+8=44!45-2=43#43", [1, 1, 1]),  # corrected
        ("37+8=44!46-2=44#44", [0, 1, 1]),  # to another wrong one
        ("37+8=44-2=42?1:45-2=43#43", None),
        ("37+8=44-2=42#43", [0, 1, 0]),
        ("37+8=45#45", [1, 0]),  # an operation is missing
        ("", []),
    ],
)
def test_a_step_counts_as_it_stands_in_the_end(text, steps):
    if steps is None:  # a backtrack to the first operation, in the form that the pattern reads
        text, steps = "37+8=44-2=42|1:45-2=43#43", [1, 1, 1]
    assert sound(text) == steps


def test_the_answer_is_the_side_and_the_chain_is_as_in_kind_chain():
    tasks = [SOURCE[index] for index in range(20)]
    assert all((task.columns["steps"][-1] >= 50) == (task.answer == "yes") for task in tasks)
    assert {task.answer for task in tasks} == {"yes", "no"}
    assert tasks[0].messages == SOURCE.chains[0].messages
