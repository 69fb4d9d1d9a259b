"""Programs as answers: which text is the program, which column holds its tests, and what each verdict is worth."""

from __future__ import annotations

import pytest
from leaves import Source, grades, task
from sandboxes import each_sandbox

from lyceum.core.types import Grade
from lyceum.reward.code import Code, program_of, read_tests
from lyceum.sandbox.backends import Backend
from lyceum.sandbox.run import SandboxError, Verdict
from lyceum.utils.errors import RecipeError

TESTS = ["assert f(1) == 5", "assert f(2) == 8"]
RIGHT = "def f(x):\n    return x * 3 + 2"
HALF = "def f(x): return 5"


def parts(**settings: object) -> Code:
    return Code.model_validate({"limits": {"seconds": 10}, "processes": 1, **settings})


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        (RIGHT, RIGHT),
        (f"First\n```\nx = 1\n```\nthen\n```python\n{RIGHT}\n```\nDone.", RIGHT),
        (f"It is\n```py\n{RIGHT}", RIGHT),  # truncated, or stopped before the closing fence
        ("x = '``' # not a fence", "x = '``' # not a fence"),
        ("", ""),
    ],
)
def test_the_program_is_the_last_fenced_block(completion: str, program: str) -> None:
    assert program_of(completion) == program


@each_sandbox
def test_all_tests_or_the_share_of_them_that_pass(backend: Backend) -> None:
    one = task(tests=TESTS)
    [right, half, none] = grades(parts(sandbox=backend), one, RIGHT, HALF, "def f(x): return")
    assert [grade.outcome for grade in (right, half, none)] == [1.0, 0.0, 0.0]
    assert [grade.correct for grade in (right, half, none)] == [True, False, False]
    assert half.parts["code/passed"] == 0.5
    assert [grade.outcome for grade in grades(parts(sandbox=backend, score="share"), one, RIGHT, HALF)] == [1.0, 0.5]


@each_sandbox
def test_input_and_output_and_a_program_over_its_limits(backend: Backend) -> None:
    one = task(tests=[{"stdin": "2\n", "stdout": "6\n"}, {"stdin": "3", "stdout": "9"}])
    part = parts(sandbox=backend, limits={"seconds": 1})
    [right, slow] = grades(part, one, "print(int(input()) * 3)", "while True: pass")
    assert (right.outcome, slow.outcome) == (1.0, 0.0)
    assert slow.parts["code/over_limit"] == 1.0


@each_sandbox
def test_tests_that_cannot_judge_leave_a_program_ungraded(backend: Backend) -> None:
    for tests in (["assert f("], ["import nowhere"], "x = 1", None, [], [1], [{"stdin": 1}]):
        [grade] = grades(parts(sandbox=backend), task(tests=tests), RIGHT)
        assert grade.outcome is None
        assert grade.reason


def test_tasks_without_tests_are_refused() -> None:
    with pytest.raises(RecipeError, match="column 'tests' holds None"):
        parts().check_tasks(Source(task()))
    assert read_tests({"tests": ["a", "b"]}, "tests") == {"tests": ["a", "b"]}
    assert "allowed" in str(read_tests({"tests": [{"stdin": "1"}]}, "tests"))


def test_without_a_sandbox_only_where_the_user_says_so() -> None:
    part = parts(sandbox="none")
    assert part.code()
    with pytest.raises(RecipeError, match=r"reward.sandbox: got 'none'.*trust_code=true"):
        part.check_tasks(Source(task(tests=TESTS)))


def test_a_machine_without_a_sandbox_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(choice: str) -> str:
        raise SandboxError("no sandbox works on this machine")

    monkeypatch.setattr("lyceum.reward.code.usable", none)
    with pytest.raises(RecipeError, match=r"no sandbox works.*apt-get install bubblewrap.*trust_code=true"):
        parts().check_tasks(Source(task(tests=TESTS)))


def test_what_failed_is_told() -> None:
    grade = parts().grade(Verdict((True, False), "assert f(2) == 8: AssertionError", None, True, 0.1, None))
    assert (grade.outcome, grade.details) == (0.0, "assert f(2) == 8: AssertionError")
    assert isinstance(grade, Grade)
