import asyncio
from types import SimpleNamespace

import pytest
from leaves import leaf
from leaves import task as any_task

from lyceum.papers.parallel_r1.reward_parallel_thinking import ParallelThinking, has_bonus, tiered
from lyceum.papers.parallel_r1.tasks_chain_parallel import ChainParallel, blocks, ends_of, on_two_paths
from lyceum.tasks.chain import grade
from lyceum.tasks.chain_demonstrations import ChainDemonstrations

PARALLEL = "[37+8=45-2=43;37-2=35+8=43]43#43"


def test_a_demonstration_works_the_chain_in_both_orders():
    assert on_two_paths(37, [8, -2]) == PARALLEL
    assert [ends_of(paths) for paths in blocks(PARALLEL)] == [["43", "43"]]


def test_half_of_the_demonstrations_have_paths_and_all_are_correct():
    source = ChainParallel(levels=(2, 3)).build("train", 0)
    tasks = [source[i] for i in range(40)]
    assert all(grade(task, leaf(task.columns["demonstration"])).correct for task in tasks)
    assert 10 < sum(bool(blocks(task.columns["demonstration"])) for task in tasks) < 30
    plain = ChainDemonstrations().build("train", 0)
    assert all(blocks(plain[i].columns["demonstration"]) == [] for i in range(20))


@pytest.mark.parametrize("text", ["[1=1]1#1", "[1;2]#3", "[1;2", "1;2#3", "[1;[2;3]4]5#5", "[;2]3#3"])
def test_marks_that_are_no_block_with_a_summary_are_malformed(text):
    assert blocks(text) is None


def test_the_last_two_of_ten_steps_pay_the_bonus():
    assert [step for step in range(30) if has_bonus(step, 10, 0.2)] == [8, 9, 18, 19, 28, 29]
    assert not any(has_bonus(step, 10, 0) for step in range(20))
    assert all(has_bonus(step, 10, 1) for step in range(20))


def test_paths_earn_more_than_none_only_where_the_answer_is_correct_and_they_are_well_formed():
    some, none, malformed = [["1", "2"]], [], None
    assert [tiered(True, found, 1.2, 1.0) for found in (some, none, malformed)] == [1.2, 1.0, -1.0]
    assert [tiered(False, found, 1.2, 1.0) for found in (some, none, malformed)] == [-1.0] * 3
    # Required: a correct answer without paths earns no more than a wrong one.
    assert tiered(True, none, 1.0, -1.0) == -1


def rewards(step, *texts, verdicts):
    graded = ParallelThinking().build(None)
    made = asyncio.run(graded(any_task("43"), [leaf(text) for text in texts], SimpleNamespace(step=step), verdicts))
    return [grade.outcome for grade in made], [grade.parts for grade in made]


def test_the_same_answers_earn_alike_in_an_accuracy_step_and_apart_in_a_bonus_step():
    texts = (PARALLEL, "37+8=45-2=43#43", "[37+8=45-2=43]43#43", "[37+8=45;37-2=34]44#44")
    verdicts = [True, True, True, False]
    assert rewards(7, *texts, verdicts=verdicts)[0] == [1, 1, 1, -1]
    paid, parts = rewards(8, *texts, verdicts=verdicts)
    assert paid == [1.2, 1, -1, -1]
    assert [part["parallel"] for part in parts] == [1, 0, 0, 1]
    assert [part["malformed"] for part in parts] == [0, 0, 1, 0]
    assert [part.get("agree") for part in parts] == [1, None, None, 0]


def test_an_answer_that_nobody_judges_is_ungraded():
    assert rewards(0, PARALLEL, verdicts=[None])[0] == [None]
