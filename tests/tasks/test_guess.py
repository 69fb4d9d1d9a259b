import asyncio

from fake_task import NO_MODEL

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.tasks.guess import Guess, GuessDemonstrations, said


def leaf_of(*turns: str, finish: str = "stop") -> Node:
    node = Node(None, [0], Origin.PROMPT)
    for number, turn in enumerate(turns):
        node = node.add([1], Origin.POLICY if number % 2 == 0 else Origin.PROMPT, turn)
    node.finish = finish
    return node


def test_a_range_has_as_many_numbers_as_its_level_says_and_holds_the_answer():
    source = Guess(levels=(2, 10)).build("train", 3)
    for index in range(20):
        task = source[index]
        low, high = task.columns["low"], task.columns["high"]
        assert high - low + 1 == task.columns["level"] == (2, 10)[index % 2]
        assert 0 <= low <= int(task.answer) <= high <= 9
        assert task.messages[0]["content"] == f"{low}:{high}?"  # the number is not in it


def test_the_last_guess_alone_is_graded_and_a_dialogue_that_was_cut_is_incorrect():
    source = Guess().build("train", 0)
    task = source[0]
    right, wrong = task.answer, str((int(task.answer) + 1) % 10)
    leaves = [
        leaf_of(wrong, "<", right),
        leaf_of(right, "<", wrong),
        leaf_of(wrong, "<", right, finish="length"),
        leaf_of(right + wrong),
    ]
    grades = asyncio.run(source.grader()(task, leaves, NO_MODEL))
    assert [grade.correct for grade in grades] == [True, False, False, False]


def test_demonstrations_show_both_sides_and_every_answer_in_them_is_true_of_one_number():
    source = GuessDemonstrations(levels=(5,), guesses=3, careful=1.0).build("train", 1)
    for index in range(0, 60, 3):
        guess, person, answer = (source[index + form] for form in range(3))
        low, high = int(guess.messages[0]["content"][0]), int(guess.messages[0]["content"][2])
        turns = [message["content"] for message in guess.messages[1:]]
        told = list(zip(map(int, turns[::2]), turns[1::2], strict=True))
        possible = [n for n in range(low, high + 1) if all(said(n, asked) == seen for asked, seen in told)]
        assert int(guess.columns["demonstration"]) in possible  # a careful guess
        assert len(told) < 3
        shown = person.messages[0]["content"]
        assert int(shown[0]) <= int(person.columns["demonstration"]) <= int(shown[2])
        number, guessed = map(int, answer.messages[0]["content"].split("@"))
        assert answer.columns["demonstration"] == said(number, guessed)


def test_critiques_are_a_fourth_form_whose_answer_is_true_whatever_was_heard():
    source, heard = GuessDemonstrations(critiques=True).build("train", 1), set()
    for index in range(3, 123, 4):
        number, at, guessed, reply, asks = source[index].messages[0]["content"]
        assert (at, asks) == ("@", "?")
        assert source[index].columns["demonstration"] == said(int(number), int(guessed))
        heard.add((reply == source[index].columns["demonstration"], reply))
    assert len(heard) == 6  # each of the three, true and not


def test_what_is_said_of_a_guess():
    assert [said(6, guess) for guess in (7, 5, 6)] == ["<", ">", "="]
