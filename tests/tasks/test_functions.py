"""Functions from words: what is asked, what the tests accept, and what is imitated."""

from __future__ import annotations

from lyceum.tasks.functions import (
    INPUTS,
    FunctionDemonstrations,
    Functions,
    expression,
    make_task,
    statements,
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
