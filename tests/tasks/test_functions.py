"""Functions from words: what is asked, what the tests accept, and what is imitated."""

from __future__ import annotations

import ast

from lyceum.tasks.functions import (
    INPUTS,
    JUDGE,
    FunctionDemonstrations,
    Functions,
    expression,
    make_task,
    statements,
    thoughts,
    value,
    words_of,
)


def test_a_task_in_words_its_tests_and_its_reference() -> None:
    task = make_task("t", [("add", 3), ("times", 2)])
    assert words_of(task) == "add 3, times 2:"
    assert task.columns["reference"] == "(x+3)*2"
    assert expression([("times", 3), ("add", 2)], slow=True) == "(x+x+x)+2"
    # (0+3)*2, (1+3)*2, (7+3)*2, (-4+3)*2
    assert task.columns["tests"] == [f"assert f({x}) == {y}" for x, y in zip(INPUTS, (6, 8, 20, -2), strict=True)]


def test_a_task_in_statements() -> None:
    task = make_task("t", [("add", 3), ("times", 2)], "statements")
    assert (task.columns["head"], task.columns["reference"]) == ("def f(x): ", "x=x+3;x=x*2;return x")
    assert statements([("add", 3), ("times", 2)], [True, False]) == "x=3+x;x=x*2;return x"
    shown = FunctionDemonstrations(functions=Functions(form="statements"), wrong=0, slow=0).build("train", 0)
    assert all(shown[index].columns["demonstration"] == shown[index].columns["reference"] for index in range(20))


def test_thoughts_are_a_comment_and_one_test_is_public() -> None:
    task = make_task("t", [("add", 3), ("times", 2)], "thoughts")
    assert task.columns["reference"] == thoughts([("add", 3), ("times", 2)]) == "+3;*2;\n return (x+3)*2"
    assert task.columns["public"] == ["assert f(0) == 6"]
    (function,) = ast.parse(task.columns["head"] + task.columns["reference"]).body
    assert ast.unparse(function) == "def f(x):\n    return (x + 3) * 2"
    assert "public" not in make_task("t", [("add", 3)], "statements").columns


def test_a_demonstration_may_correct_or_judge_the_program_in_its_prompt() -> None:
    turns = FunctionDemonstrations(functions=Functions(form="thoughts"), wrong=0.5, slow=0, corrected=1, judged=1)
    plain = turns.model_copy(update={"corrected": 0.0, "judged": 0.0}).build("train", 0)
    said = set[str]()
    for task, alone in ((turns.build("train", 0)[index], plain[index]) for index in range(40)):
        *_, attempt, message = task.messages
        assert attempt["content"] == alone.columns["demonstration"]
        if message["content"] == JUDGE:
            shown = "1" if attempt["content"] == task.columns["reference"] else "-1"
        else:
            assert message["content"] == f"{task.columns['tests'][0]}: AssertionError"
            shown = task.columns["reference"]
        assert task.columns["demonstration"] == shown
        said.add(shown[:1])
    assert said == {"1", "-", "+", "*"}


def test_expressions_compute_what_the_words_say_and_noise_never_does() -> None:
    clean = FunctionDemonstrations(wrong=0, slow=0.5).build("train", 0)
    noisy = FunctionDemonstrations(wrong=1, slow=0.5).build("train", 0)
    for index in range(150):
        task = clean[index]
        steps = task.columns["operations"]
        for x in INPUTS:
            assert _computed(task.columns["demonstration"], x) == value(steps, x)
        wrong = noisy[index].columns["demonstration"]
        assert any(_computed(wrong, x) != value(steps, x) for x in INPUTS)


def test_a_source_is_a_function_of_seed_split_and_index() -> None:
    train, heldout = (Functions().build(split, 3) for split in ("train", "heldout"))
    assert train[7] == Functions().build("train", 3)[7]
    asked = [{words_of(source[index]) for index in range(300)} for source in (train, heldout)]
    assert not asked[0] & asked[1]
    assert [train[index].columns["level"] for index in range(4)] == [1, 2, 3, 1]


def _computed(text: str, x: int) -> int:
    """The value of sums and products, without running them as Python."""
    from lyceum.utils.arithmetic import evaluate

    found = evaluate(text.replace("x", str(x)) if x >= 0 else text.replace("x", f"(0-{-x})"))[0]
    assert found is not None
    return int(found)
