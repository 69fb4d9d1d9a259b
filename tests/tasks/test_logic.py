import asyncio

import pytest
from fake_task import NO_MODEL
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.tree import Node
from lyceum.core.types import Origin, Task
from lyceum.tasks.logic import Logic, check_steps, follows


def parsed(task: Task):
    rules = [rule.split(" -> ") for rule in task.columns["rules"]]
    return [(tuple(premises.split(" & ")), conclusion) for premises, conclusion in rules]


def test_forward_chaining_stops_where_a_premise_is_missing():
    rules = [(("A", "B"), "C"), (("C",), "D"), (("X",), "E"), (("D", "E"), "F")]
    assert follows("AB", rules) == {"C", "D"}
    assert follows("A", rules) == set()


def test_a_step_is_a_rule_whose_premises_are_known_by_then():
    rules = ["A & B -> C", "C -> D", "X -> E"]
    assert check_steps(["A", "B"], rules, ["B & A -> C", "C -> D"]) == [True, True]
    assert check_steps(["A", "B"], rules, ["C -> D", "A & B -> C"]) == [False, True]  # D before C is known
    assert check_steps(["A", "B"], rules, ["A -> C", "X -> E", "so C"]) == [False, False, False]


@pytest.mark.parametrize("split", ["train", "heldout"])
@given(index=st.integers(0, 99_999), seed=st.integers(0, 1000))
def test_the_answer_is_what_follows_and_its_steps_are_right(split, index: int, seed: int):
    task = Logic(levels=(1, 3, 8, 20), distractors=4).build(split, seed)[index]
    assert task.answer.split() == sorted(follows(task.columns["facts"], parsed(task)))
    assert len(task.answer.split()) == task.columns["level"] == len(task.columns["steps"])
    assert all(check_steps(task.columns["facts"], task.columns["rules"], task.columns["steps"]))
    # No rule can be left out: without its first the rest of the chain is not right.
    assert not any(check_steps(task.columns["facts"], task.columns["rules"], task.columns["steps"][1:]))


def test_train_and_heldout_share_no_problem():
    settings = Logic(levels=(1,), distractors=0)

    def problems(split, seed, count):
        source = settings.build(split, seed)
        return {source[index].messages[0]["content"] for index in range(count)}

    train, heldout = problems("train", 0, 400) | problems("train", 1, 400), problems("heldout", 2, 100)
    assert len(heldout) > 50
    assert not train & heldout
    assert settings.build("train", 5)[9] == settings.build("train", 5)[9]


def test_the_verifier_wants_all_letters_and_no_other():
    source = Logic(levels=(3,)).build("train", 0)
    task = source[0]
    a, b, c = task.answer.split()
    prompt = Node(None, [1], Origin.PROMPT)
    texts = [f"<answer>{c}, {a} {b}</answer>", f"<answer>{a} {b}</answer>", f"<answer>{a} {b} {c} {c}</answer>", a]
    leaves = [Node(prompt, [2], Origin.POLICY, finish="stop", text=text) for text in texts]

    async def grade():
        return await source.grader()(task, leaves, NO_MODEL)

    assert [grade.outcome for grade in asyncio.run(grade())] == [1.0, 0.0, 0.0, 0.0]
