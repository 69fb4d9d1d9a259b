import asyncio
import random

import pytest
from fake_task import NO_MODEL
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.totrl.tasks_sign_trees import SignTrees, thought


def correct(source, task, text):
    leaf = Node(None, [0], Origin.PROMPT).add(list(range(len(text))), Origin.POLICY, text)
    (grade,) = asyncio.run(source.grader()(task, [leaf], NO_MODEL))
    return grade.correct


def test_a_tree_leaves_what_is_no_number_of_the_problem_or_no_target():
    # 3 to 7 by 5 and 1: 3 - 5 is below 0, 8 + 1 = 9 is not the target.
    text, found = thought(random.Random(0), 3, [5, 1], 7, tree=True)
    assert text == "+8|-x;++9x|+-7"
    assert found == (5, -1)


def test_a_chain_goes_on_with_one_guess_alone():
    texts = {thought(random.Random(seed), 3, [5, 1], 7, tree=False)[0] for seed in range(20)}
    assert texts == {"-x", "+8;++9x", "+8;+-7"}


def test_prompts_say_whether_trees_are_wanted_and_whether_to_think():
    source = SignTrees(levels=(2,), trees={"chain": 0, "plain": 1, "thinking": 1}).build("train", 0)
    chain, plain, thinking = (source[i] for i in range(3))
    problems = [task.columns["problem"] for task in (chain, plain, thinking)]
    said = [task.messages[0]["content"] for task in (chain, plain, thinking)]
    assert said == [problems[0], f"tree {problems[1]}<>", f"tree {problems[2]}"]
    for task in (plain, thinking):
        assert correct(source, task, task.columns["demonstration"])
        assert "|" in task.columns["demonstration"]
    assert "|" not in chain.columns["demonstration"]
    # The form belongs to the mode: thoughts in the wrong place earn nothing, though the answer is correct.
    assert correct(source, plain, f"so#{plain.answer}")
    assert not correct(source, plain, f"<so>#{plain.answer}")
    assert not correct(source, thinking, f"so#{thinking.answer}")
    assert correct(source, thinking, f"<so>#{thinking.answer}")


def test_any_signs_that_lead_to_the_target_are_correct_and_others_are_not():
    source = SignTrees(levels=(3,)).build("train", 0)
    task = source[1].with_messages(source[1].messages)
    task.columns.update(operands=[4, 2, 2], start=1, target=5)
    assert correct(source, task, "#++-")
    assert correct(source, task, "#+-+")
    assert not correct(source, task, "#+--")
    assert not correct(source, task, "#+")
    assert not correct(source, task, "#-++")  # 1 - 4 is below 0


def test_no_problem_is_in_both_splits():
    train, heldout = (SignTrees(levels=(2,)).build(split, 0) for split in ("train", "heldout"))
    problems = [{source[i].columns["problem"] for i in range(60)} for source in (train, heldout)]
    assert not problems[0] & problems[1]


def test_shares_beyond_one_are_refused():
    with pytest.raises(ValidationError, match="allowed: shares from 0 to 1"):
        SignTrees(trees={"plain": 2})
