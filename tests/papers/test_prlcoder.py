"""Lines judged in the reference's place (PRLCoder): what is refactored is right, what is mutated is not."""

from __future__ import annotations

import pytest
from leaves import Source, grades, task
from sandboxes import sandboxed

from lyceum.papers.prlcoder.reward_code_lines import CodeLines, replaced, spans_of
from lyceum.utils.errors import RecipeError

PART = CodeLines.model_validate({"limits": {"seconds": 10}, "processes": 1, "separator": ";"})
REFERENCE = "x=x+3;x=x*2;return x"


@sandboxed
def test_each_line_is_judged_alone() -> None:
    one = task(tests=["assert f(1) == 8", "assert f(-4) == -2"], head="def f(x): ", reference=REFERENCE)
    programs = {
        "x=3+x;x=x*2;return x": (1.0, [1, 1, 1], 1, 0),
        # x=x+4 fails in the place of x=x+3; x=2*x passes in that of x=x*2, though the whole program fails.
        "x=x+4;x=2*x;return x": (0.0, [0, 1, 1], 1, 1),
        "x=x+3;x=x*2": (0.0, [1, 1], 0, 0),
        # In the wrong order each is another statement than the one in its place; the fourth has no place.
        "x=x*2;x=x+3;return x;return x": (0.0, [0, 0, 1, 0], 0, 2),
        "x=x+x;x=x+6;return x": (1.0, [1, 1, 1], 2, 0),
        "": (0.0, [], 0, 0),
    }
    for found, (outcome, labels, refactored, mutated) in zip(
        grades(PART, one, *programs), programs.values(), strict=True
    ):
        assert (found.outcome, [step.reward for step in found.steps]) == (outcome, labels)
        assert found.parts["code-lines/refactored"] == refactored
        assert found.parts["code-lines/mutated"] == mutated
    [fenced] = grades(PART, one, f"So:\n```python\n{REFERENCE}\n```")
    assert [step[:2] for step in fenced.steps] == [(14, 20), (20, 26), (26, 34)]
    [grade] = grades(PART, task(tests=["assert f(1) == 9"], head="def f(x): ", reference=REFERENCE), "return x")
    assert grade.reason is not None
    assert "the reference program does not pass" in grade.reason


def test_lines_and_the_programs_they_are_tried_in() -> None:
    assert spans_of("a=1\n\n b=2", "\n") == [(0, 4), (5, 9)]
    assert replaced("a;b;c", "d;e", ";") == ["d;b;c", "a;e;c"]


def test_tasks_without_a_reference_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CodeLines, "backend", lambda self: "landlock")
    with pytest.raises(RecipeError, match=r"reward.reference: task 't/1', column 'reference': got None"):
        PART.check_tasks(Source(task(tests=["assert f(3) == 9"])))
    assert PART.fault_of("x=1;" * 64) is None
    assert "1 to 64 lines" in str(PART.fault_of("x=1;" * 65))
