from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.tasks.base import grade_after_mark
from lyceum.tasks.chain_choice import ChainChoice, make_task

SOURCE = ChainChoice().build("train", 0)
TASK = make_task("t", 37, [8, -2], [51, 43, 97, 60])  # 37+8 = 45, -2 = 43, the second option


def test_the_answer_is_the_letter_of_the_option_that_equals_the_result():
    assert TASK.messages[0]["content"] == "37+8-2?A51B43C97D60="
    assert TASK.answer == "B"
    assert TASK.columns["demonstration"] == "37+8=45-2=43#B"


def test_another_order_changes_the_letters_and_nothing_else():
    assert SOURCE.reordered(TASK, [1, 3, 0, 2])[0]["content"] == "37+8-2?A43B60C51D97="


def test_at_level_0_the_option_is_only_looked_up():
    task = make_task("t", 43, [], [51, 43, 97, 60])
    assert task.messages[0]["content"] == "43?A51B43C97D60="
    assert task.columns["demonstration"] == "43#B"


def test_the_letter_alone_is_correct_and_truncated_completions_never_are():
    def correct(text, finish="stop"):
        leaf = Node(None, [0], Origin.PROMPT).add([1], Origin.POLICY, text)
        leaf.finish = finish
        return grade_after_mark(TASK, leaf).correct

    assert correct("37+8=45-2=43#B")
    assert not correct("37+8=45-2=43#43")
    assert not correct("37+8=45-2=43#B", finish="length")


def test_no_two_options_share_a_digit_in_the_same_place_and_all_letters_are_answers():
    tasks = [SOURCE[index] for index in range(100)]
    for task in tasks:
        assert len({int(option) // 10 for option in task.columns["options"]}) == 4
        assert len({int(option) % 10 for option in task.columns["options"]}) == 4
    assert {task.answer for task in tasks} == set("ABCD")
    assert [task.columns["level"] for task in tasks[:4]] == [0, 1, 2, 0]
