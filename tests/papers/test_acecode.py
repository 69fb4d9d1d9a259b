"""ACECode's reward: a step function of correctness, and of efficiency among correct programs."""

from __future__ import annotations

import pytest
from leaves import Source, grades, task
from sandboxes import sandboxed

from lyceum.papers.acecode import tasks_sums as sums
from lyceum.papers.acecode.reward_code_efficiency import CodeEfficiency
from lyceum.papers.acecode.tasks_sums import formula, loop
from lyceum.sandbox.run import Verdict
from lyceum.utils.errors import RecipeError

PART = CodeEfficiency.model_validate({"limits": {"seconds": 10}, "processes": 1})


def verdict(*tests: bool, operations: int | None = 10, ran: bool = True, limit: str | None = None) -> Verdict:
    return Verdict(tests, None, limit, ran, 0.1, operations)


@pytest.mark.parametrize(
    ("program", "reward"),
    [
        (verdict(True, True, operations=20), 0.5 + 0.5 * 10 / 20),  # twice the reference's instructions
        (verdict(True, True, operations=10), 1.0),
        (verdict(True, True, operations=5), 1.0),  # the ratio is at most 1
        (verdict(True, True, operations=None), 0.5),  # not counted: correct, and nothing for efficiency
        (verdict(True, False, operations=1), 0.0),  # no efficiency without correctness
        (verdict(ran=False), -0.5),
        (verdict(False, False, ran=False, limit="wall-clock time"), -0.5),
    ],
)
def test_the_reward_of_each_branch(program: Verdict, reward: float) -> None:
    assert PART.grade(program, verdict(True, True)).outcome == reward


@sandboxed
def test_programs_are_measured_beside_the_reference() -> None:
    one = task(tests=["assert f(3) == 9", "assert f(0) == 0"], head="def f(x): return ", reference="x*3")
    [best, longer, wrong, broken] = grades(PART, one, "x*3", "x+x+x", "x*2", "x*")
    assert best.outcome == 1.0
    assert longer.outcome is not None
    assert 0.5 < longer.outcome < 1
    assert (wrong.outcome, broken.outcome) == (0.0, -0.5)
    [grade] = grades(PART, task(tests=["assert f(3) == 9"], reference="def f(x): return 1"), "x")
    assert grade.reason is not None
    assert "the reference program does not pass" in grade.reason


@sandboxed
def test_a_loop_is_right_and_dear_beside_a_formula() -> None:
    [fast, slow, wrong] = grades(PART, sums.make_task("t", 37), formula(37), loop(37), loop(38))
    assert (fast.outcome, fast.correct, slow.correct, wrong.outcome) == (1.0, True, True, 0.0)
    # Four times a formula of about ten instructions, and 43 turns of the loop of about six.
    assert 0.05 < slow.parts["code-efficiency/efficiency"] < 0.25
    assert slow.parts["code-efficiency/dearer"] == 1 > fast.parts["code-efficiency/dearer"]


def test_tasks_without_a_reference_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CodeEfficiency, "backend", lambda self: "landlock")
    with pytest.raises(RecipeError, match=r"reward.reference: task 't/1' has None"):
        PART.check_tasks(Source(task(tests=["assert f(3) == 9"])))
