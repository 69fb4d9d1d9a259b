import asyncio

import pytest
from fake_task import NO_MODEL
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lyceum.core.component import explain
from lyceum.core.solution import ladder_of
from lyceum.core.tree import Node
from lyceum.core.types import Origin, Task
from lyceum.tasks.countdown import Countdown, check_steps, solves
from lyceum.utils.errors import RecipeError


def problem(task: Task) -> tuple[tuple[int, ...], str]:
    return tuple(sorted(task.columns["numbers"])), task.answer


@pytest.mark.parametrize(
    ("expression", "right"),
    [
        ("(8-3)*2", True),
        ("(8 - 3) * 2 = 10", True),
        ("(8-3)*2=11", False),  # right value, wrong claim
        ("8+2", True),  # not every number must be used
        ("8+3-1", False),  # 1 is not given
        ("2*(3+2)", False),  # 2 twice
        ("8+4/2", False),
        ("8-(3-3)", False),  # 3 twice
        ("8/3*3+2", False),
        ("2**3+2", False),
        ("10//1", False),
        ("+8+2", False),
        ("__import__('os').getcwd()", False),
        ("(lambda: 10)()", False),
        ("10", False),
        ("", False),
        ("8/0", False),
        ("8+²", False),
        ("(" * 150, False),
        ("9**9**9**9", False),
        ("1" * 199, False),
        ("8+2\x00", False),
    ],
)
def test_an_expression_of_the_given_numbers_that_reaches_the_target(expression: str, right: bool):
    assert solves(expression, [8, 3, 2], 10) is right


def test_fractions_on_the_way_are_exact():
    # In floating point 8/(3-8/3) is 23.999999999999993.
    assert solves("8/(3-8/3)", [8, 8, 3, 3], 24)


@given(st.text(max_size=40))
def test_grading_takes_any_text(text: str):
    assert solves(text, [8, 3, 2], 10) in (True, False)


def test_a_step_takes_two_of_the_numbers_that_are_left():
    # 5 comes from the first step; 8 is gone after it; a wrong step leaves nothing to build on.
    assert check_steps([8, 3, 2], ["8-3=5", "5*2=10"]) == [True, True]
    assert check_steps([8, 3, 2], ["8-3=5", "8+2=10"]) == [True, False]
    assert check_steps([8, 3, 2], ["8-3=6", "6+2=8"]) == [False, False]
    assert check_steps([8, 3, 2], ["8-3+2=7", "8=8", "nonsense"]) == [False, False, False]


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_every_task_has_a_solution_whose_steps_are_right(split):
    source = Countdown(levels=(2, 3, 4, 5, 6)).build(split, seed=3)
    for index in range(200):
        task = source[index]
        numbers, target = task.columns["numbers"], int(task.answer)
        assert len(numbers) == task.columns["level"] == (2, 3, 4, 5, 6)[index % 5]
        assert 1 <= target <= 100
        assert target not in numbers
        assert solves(task.columns["solution"], numbers, target)
        assert check_steps(numbers, task.columns["steps"]) == [True] * (len(numbers) - 1)
        assert task.columns["steps"][-1].endswith(f"={target}")
        assert str(target) in task.messages[0]["content"]


def test_a_task_follows_from_seed_split_and_index_alone():
    settings = Countdown()
    forwards = [settings.build("train", 1)[index] for index in range(20)]
    source = settings.build("train", 1)
    assert [source[index] for index in reversed(range(20))] == forwards[::-1]
    assert [problem(settings.build("train", 2)[index]) for index in range(20)] != [problem(t) for t in forwards]
    assert len({task.id for task in forwards}) == 20


def test_train_and_heldout_share_no_problem_whatever_the_seed_and_the_order_of_the_numbers():
    # Numbers 1 to 6 give few problems: without the split by checksum most would be in both.
    settings = Countdown(levels=(2, 3), max_number=6, max_target=30)
    train = {problem(settings.build("train", seed)[index]) for seed in (0, 1) for index in range(400)}
    heldout = {problem(settings.build("heldout", seed)[index]) for seed in (5, 6) for index in range(100)}
    assert len(heldout) > 5
    assert not train & heldout


def test_a_source_ends_where_it_says():
    source = Countdown(size=3).build("train", 0)
    assert len(list(source)) == len(source) == 3  # pyright: ignore[reportArgumentType]
    with pytest.raises(IndexError, match="there are 0 to 2"):
        source[-1]


def test_bounds_that_allow_no_problem_are_named():
    with pytest.raises(RecipeError, match="the bounds allow too few problems"):
        Countdown(levels=(8,), min_number=9000, max_number=9999, max_target=2).build("train", 0)[0]


def test_hints_go_from_abstract_to_concrete_and_never_hold_the_whole_solution():
    task = Countdown(levels=(4,)).build("train", 0)[0]
    assert [hint["tier"] for hint in task.columns["hints"]] == ["knowledge", "planning", "solution", "solution"]
    assert task.columns["steps"][-1] not in task.columns["hints"][-1]["text"]
    source = Countdown(levels=(4,)).build("train", 0)
    hinted = source.hinted(task, ladder_of(task)[-1])
    assert hinted.id == task.id
    assert hinted.messages[0]["content"].startswith(task.messages[0]["content"])
    assert task.columns["steps"][1] in hinted.messages[0]["content"]


def test_the_verifier_reads_the_expression_in_its_place():
    source = Countdown(levels=(3,)).build("train", 0)
    task = source[0]
    solution = task.columns["solution"]
    prompt = Node(None, [1], Origin.PROMPT)
    texts = [f"so <answer>{solution}</answer>", solution, "<answer>1</answer>"]
    leaves = [Node(prompt, [2], Origin.POLICY, finish="stop", text=text) for text in texts]

    async def grade():
        return await source.grader()(task, leaves, NO_MODEL)

    assert [grade.outcome for grade in asyncio.run(grade())] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"levels": [1]}, "levels: got [1]; allowed: different counts of numbers from 2 to 8, at least one"),
        ({"max_number": 1}, "max_number: got 1, but min_number is 1; allowed: more than that"),
        ({"prompt": "Make {target}"}, "prompt: got 'Make {target}'; allowed: a text with {numbers} and {target}"),
        ({"prompt": "{numbers.__class__}{target}"}, "got {numbers.__class__}; allowed: {column}"),
    ],
)
def test_a_wrong_setting_is_named(settings, line):
    with pytest.raises(ValidationError) as error:
        Countdown.model_validate(settings)
    assert line in explain(error.value, Countdown)[0]


def test_the_demonstration_is_right():
    source = Countdown().build("train", 0)
    for index in range(8):
        task = source[index]
        text = task.columns["demonstration"]
        leaf = Node(None, [0], Origin.PROMPT).add([1], Origin.TEACHER, text)
        [graded] = asyncio.run(source.grader()(task, [leaf], NO_MODEL))
        assert graded.outcome == 1, text
