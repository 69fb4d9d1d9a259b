import asyncio
import random

import pytest
from fake_task import NO_MODEL
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from lyceum.core.solution import ladder_of
from lyceum.core.tree import Node
from lyceum.core.types import Hint, Origin
from lyceum.tasks.chain import (
    Chain,
    chain_text,
    completion_text,
    grade,
    hinted,
    is_heldout,
    judge_steps,
    make_task,
    results_of,
    retried,
)

# 37+8 = 45, 45-2 = 43, 43+5 = 48
TASK = make_task("t", 37, [8, -2, 5])
RIGHT = "37+8=45-2=43+5=48#48"

chains = st.tuples(
    st.integers(0, 99),
    st.lists(st.integers(-9, 9).filter(bool), min_size=1, max_size=8),
)


def leaf(*texts: str, finish: str = "stop", tokens_of=len) -> Node:
    node = Node(None, [0], Origin.PROMPT, text="p")
    for text in texts:
        node = node.add(range(tokens_of(text)), Origin.POLICY, text)
    node.finish = finish
    return node


def test_there_is_an_answer_once_something_stands_behind_the_mark():
    said = [grade(TASK, leaf(text, finish="length")).answered for text in (RIGHT, "37+8=45#4", "37+8=45#", "37+8=45")]
    assert said == [True, True, False, False]


def test_a_task_shows_the_chain_and_keeps_each_result():
    assert TASK.messages == ({"role": "user", "content": "37+8-2+5="},)
    assert TASK.answer == "48"
    assert TASK.columns["level"] == 3
    assert TASK.columns["steps"] == [45, 43, 48]
    assert TASK.columns["demonstration"] == RIGHT


def test_results_go_round_at_100_both_ways():
    # 99+3 = 102 -> 2; 2-9 = -7 -> 93
    assert results_of(99, [3, -9]) == [2, 93]


@given(chains)
def test_the_demonstration_of_any_chain_is_right_in_every_step(chain):
    task = make_task("t", *chain)
    result = grade(task, leaf(task.columns["demonstration"]))
    assert result.correct
    assert result.outcome == 1.0
    # one judgement a result, and one for the answer
    assert [step.reward for step in result.steps] == [1.0] * (len(chain[1]) + 1)


@pytest.mark.parametrize(
    ("text", "correct", "judged"),
    [
        (RIGHT, True, [1, 1, 1, 1]),
        # A slip at the first step: 55-2 = 53 and 53+5 = 58 follow rightly, so only the slip is a wrong step.
        ("37+8=55-2=53+5=58#58", False, [0, 1, 1, 1]),
        # Taken back: the wrong number is still a wrong step, its correction a right one.
        ("37+8=55!45-2=43+5=48#48", True, [0, 1, 1, 1, 1]),
        # A correction that makes a right number wrong.
        ("37+8=45!55-2=53+5=58#58", False, [1, 0, 1, 1, 1]),
        # Stopping early: each step is right, the answer is what is wrong.
        ("37+8=45-2=43#43", False, [1, 1, 0]),
        # An operation that the chain has not got, with its own result right.
        ("37+8=45-3=42+5=47#47", False, [1, 0, 1, 1]),
        # One operation too many.
        ("37+8=45-2=43+5=48+1=49#49", False, [1, 1, 1, 0, 0]),
        # The answer does not repeat the last result.
        ("37+8=45-2=43+5=48#84", False, [1, 1, 1, 0]),
        # The right answer after wrong steps is right, and its steps are still wrong.
        ("37+8=46-2=44+5=49#48", True, [0, 1, 1, 0]),
        # A way back behind the first "=": 55 was a slip, 55-2 was left without a result, and 45 takes the place of 55.
        ("37+8=55-2=?1:45-2=43+5=48#48", True, [0, 1, 1, 1, 1]),
        # The wrong turn was followed to its end before it was left: the operations behind the way back are no surplus.
        ("37+8=55-2=53+5=58?1:45-2=43+5=48#48", True, [0, 1, 1, 1, 1, 1, 1]),
        # Back behind the second "=" alone, where the slip was; then twice, to a number that is no better.
        ("37+8=45-2=42+5=47?2:43+5=48#48", True, [1, 0, 1, 1, 1, 1]),
        ("37+8=45-2=42?2:41+5=46?2:43+5=48#48", True, [1, 0, 0, 1, 1, 1, 1]),
        # Back behind the "=" that was left without a result.
        ("37+8=45-2=?2:43+5=48#48", True, [1, 1, 1, 1]),
        # From the beginning: its number is the chain's own, and no step.
        ("37+8=55-2=53?0:37+8=45-2=43+5=48#48", True, [0, 1, 1, 1, 1, 1]),
        # A way back to what was never written changes nothing, and is no right step.
        ("37+8=45?3:48#48", True, [1, 0, 0]),
        # An operation without its result was not done.
        ("37+8=45-2=43+5=#48", True, [1, 1, 0]),
        # A correction before anything was written.
        ("37!45#48", True, [0, 0]),
        ("", False, []),
        ("48", False, []),
    ],
)
def test_answers_and_steps_are_judged_apart(text, correct, judged):
    result = grade(TASK, leaf(text))
    assert result.correct is correct
    assert result.outcome == float(correct)
    assert [step.reward for step in result.steps] == judged


@pytest.mark.parametrize("answer", ["48 or 49", "4", "048", "48#48", "#48", "forty-eight", "-52"])
def test_only_the_answer_itself_after_the_mark_is_right(answer):
    assert grade(TASK, leaf(f"37+8=45-2=43+5=48#{answer}")).correct is False


def test_what_the_length_limit_cut_is_not_right_even_if_it_reads_so():
    # The answer 4 would be found in a "#48" that was cut after "#4".
    task = make_task("t", 3, [1])
    assert task.answer == "4"
    assert grade(task, leaf("3+1=4#4", finish="length")).correct is False


def test_a_stop_string_after_the_answer_does_not_make_it_wrong():
    assert grade(TASK, leaf(RIGHT + "\n")).correct


def test_steps_are_spans_of_the_text_one_after_another_whatever_its_tokens_are():
    # "37+8=45" is 7 characters; "-2=43" ends at 12, "+5=48" at 17, "#48" at 20. A cut inside a step moves nothing.
    spans = [(0, 7, 1.0), (7, 12, 1.0), (12, 17, 1.0), (17, 20, 1.0)]
    assert list(grade(TASK, leaf(RIGHT)).steps) == spans
    assert list(grade(TASK, leaf("37+8=45-", "2=43+5=48#48")).steps) == spans
    assert list(grade(TASK, leaf(RIGHT, tokens_of=lambda text: len(text) // 2)).steps) == spans


def test_a_number_of_thousands_of_digits_is_wrong_and_no_error():
    # Python refuses to read it; one such completion would leave its whole group without grades.
    assert judge_steps(TASK, f"37+8={'1' * 5000}!{'1' * 5000}{'1' * 5000}:{'1' * 5000}+{'1' * 5000}=1") != []


@given(chains, st.text("0123456789+-=!#?:", max_size=40))
def test_any_text_is_judged_without_an_error_and_in_order(chain, text):
    judged = judge_steps(make_task("t", *chain), text)
    ends = [end for end, _ in judged]
    assert ends == sorted(set(ends))
    assert {good for _, good in judged} <= {0.0, 1.0}


def test_grades_come_in_the_order_of_the_leaves():
    source = Chain(size=8).build("train", 0)
    grades = asyncio.run(source.grader()(TASK, [leaf("1#1"), leaf(RIGHT), leaf("2#2")], NO_MODEL))
    assert [each.correct for each in grades] == [False, True, False]


def test_hints_go_from_abstract_to_concrete_and_never_show_the_answer_of_two_steps_or_more():
    assert TASK.columns["hints"] == [
        {"tier": "knowledge", "text": "~lr"},
        {"tier": "planning", "text": ":3"},
        {"tier": "solution", "text": "|45"},
        {"tier": "solution", "text": "|45,43"},
    ]
    # 8 operations: a quarter is 2 results, half 4, all but the last 7
    eight = make_task("t", 0, [1] * 8).columns["hints"]
    assert [hint["text"] for hint in eight[2:]] == ["|1,2", "|1,2,3,4", "|1,2,3,4,5,6,7"]


def test_the_only_result_of_a_single_operation_is_no_hint():
    assert [hint["tier"] for hint in make_task("t", 1, [2]).columns["hints"]] == ["knowledge", "planning"]


def test_a_hinted_task_is_the_same_problem_under_another_prompt():
    source = Chain().build("train", 0)
    helped = source.hinted(TASK, ladder_of(TASK)[2])
    assert helped.messages == ({"role": "user", "content": "37+8-2+5|45="},)
    assert (helped.id, helped.answer) == (TASK.id, TASK.answer)
    assert helped.hint == Hint("solution", "|45")
    # a hint replaces a hint
    assert hinted(helped, ladder_of(TASK)[1]).messages[0]["content"] == "37+8-2+5:3="


def test_a_retry_goes_on_from_the_attempt():
    again = retried(TASK, "37+8=55-2=53+5=58#58", wrong_step=1)
    assert [turn["role"] for turn in again.messages] == ["user", "assistant", "user"]
    assert again.messages[2]["content"] == "!1="
    assert retried(TASK, "#1").messages[2]["content"] == "!="


def test_splits_share_no_chain_whatever_the_seed():
    settings = Chain(size=400)
    train = {settings.build("train", seed)[i].messages[0]["content"] for seed in (0, 1) for i in range(400)}
    heldout = {settings.build("heldout", seed)[i].messages[0]["content"] for seed in (0, 1) for i in range(400)}
    assert not train & heldout
    assert all(is_heldout(chain) for chain in heldout)


def test_one_chain_in_ten_is_held_out():
    # 1800 chains of one operation; binomial standard deviation 13, five of them either way
    kept = sum(is_heldout(chain_text(start, [o])) for start in range(100) for o in range(-9, 10) if o)
    assert 115 < kept < 245


def test_levels_come_in_equal_shares():
    source = Chain(levels=(2, 5, 7), size=9).build("train", 3)
    assert [task.columns["level"] for task in source] == [2, 5, 7] * 3


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 999))
def test_a_task_follows_from_seed_split_and_index_alone(seed, index):
    random.seed(seed + index)  # the shared stream must not matter
    first = Chain(size=1000).build("heldout", seed)[index]
    assert Chain(size=1000).build("heldout", seed)[index] == first


def test_seeds_and_splits_give_other_tasks():
    def prompts(split, seed):
        return [task.messages[0]["content"] for task in Chain(levels=(8,), size=20).build(split, seed)]

    assert not set(prompts("train", 0)) & set(prompts("train", 1))


def test_a_source_ends():
    source = Chain(size=3).build("train", 0)
    assert len(list(source)) == len(source) == 3
    with pytest.raises(IndexError, match="0 to 2"):
        source[3]


@pytest.mark.parametrize("levels", [(), (0,), (1, 1), (65,)])
def test_levels_that_cannot_be_are_refused(levels):
    with pytest.raises(ValidationError, match="1 to 64"):
        Chain(levels=levels)


def test_a_completion_may_stop_early_and_answers_what_a_correction_put():
    assert completion_text(37, [8, -2, 5], [45, 43]) == "37+8=45-2=43#43"
    assert completion_text(37, [8, -2], [45, "53!43"]) == "37+8=45-2=53!43#43"
