import pytest

from lyceum.core.tree import Node
from lyceum.core.types import Hint, Origin
from lyceum.tasks.base import grade_after_mark
from lyceum.tasks.cliff import Cliff, CliffDemonstrations, hinted, hints_of, make_task, results_of


def leaf_of(task, text, finish="stop"):
    node = Node(None, [0], Origin.PROMPT).add(list(range(len(text))), Origin.POLICY, text)
    node.finish = finish
    return node


def verdicts(task, *texts, finish="stop"):
    return [grade_after_mark(task, leaf_of(task, text, finish)).correct for text in texts]


def test_a_star_takes_its_operand_off():
    # 7 - 8 = -1, which is 99 modulo 100, - 5 = 94
    assert results_of(7, [8, 5]) == [99, 94]
    task = make_task("t", 7, [8, 5])
    assert task.messages[0]["content"] == "7*8*5="
    assert task.columns["demonstration"] == "7*8=99*5=94#94"
    assert verdicts(task, "7*8=99*5=94#94", "7*8=15*5=20#20", "7*8=99*5=94#94 ok") == [True, False, False]


def test_what_the_length_limit_cut_is_never_right():
    assert verdicts(make_task("t", 7, [8, 5]), "7*8=99*5=94#94", finish="length") == [False]


def test_no_hint_gives_the_last_result():
    assert [hint["text"] for hint in hints_of([29, 24, 21])] == ["~*-", ":3", "|29", "|29,24"]
    task = make_task("t", 37, [8, 5, 3])
    assert hinted(task, Hint("solution", "|29")).messages[0]["content"] == "37*8*5*3|29="


@pytest.mark.parametrize("start", range(100))
def test_adding_the_operand_at_any_step_is_never_right_by_chance(start):
    operands = [9, 9, 9, 9, 9]  # the greatest sums: the furthest that a wrong result can come round again
    right = results_of(start, operands)[-1]
    for wrong in range(1, 2 ** len(operands)):
        value = start
        for place, operand in enumerate(operands):
            value = (value + operand if wrong >> place & 1 else value - operand) % 100
        assert value != right


def test_a_writer_without_help_breaks_the_rule_at_nearly_every_step_and_with_help_mostly_keeps_it():
    kept: dict[str, list[bool]] = {}
    source = CliffDemonstrations(right=(0.0, 1.0, 0.5, 1.0)).build("train", 0)
    for index in range(300):
        task = source[index]
        start, operands = task.columns["start"], task.columns["operands"]
        by_the_rule = make_task("t", start, operands).columns["demonstration"]
        tier = "none" if task.hint is None else task.hint.tier
        kept.setdefault(tier, []).append(task.columns["demonstration"] == by_the_rule)
    assert set(kept) == {"none", "knowledge", "planning", "solution"}
    assert not any(kept["none"])
    assert all(kept["knowledge"])
    assert all(kept["solution"])


def test_training_and_held_out_problems_are_different_for_every_seed():
    problems = [
        {source[i].messages[0]["content"] for i in range(300)}
        for source in (Cliff(stars=1).build("train", 0), Cliff(stars=1).build("heldout", 1))
    ]
    assert not problems[0] & problems[1]
