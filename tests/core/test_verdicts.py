"""Plain numbers as verdicts: a part judges where all of its numbers are 0 or 1, and an accuracy is never biased."""

from __future__ import annotations

from lyceum.core.types import Grade, verdict_reader


def verdicts(*grades: Grade) -> list[bool | None]:
    read = verdict_reader(grades)
    return [read(grade) for grade in grades]


def test_numbers_judge_where_all_are_0_or_1():
    assert verdicts(Grade(1.0), Grade(0.0)) == [True, False]
    # The two that happen to be 0 and 1 would say 50 %.
    assert verdicts(Grade(1.0), Grade(0.4), Grade(0.0)) == [None, None, None]


def test_a_verdict_of_the_grader_counts_whatever_the_numbers_are():
    assert verdicts(Grade(0.4, True), Grade(0.3), Grade(1.0)) == [True, None, None]


def test_what_is_not_graded_has_no_verdict():
    assert verdicts(Grade(1.0), Grade.ungraded("why")) == [True, None]


def test_of_several_parts_those_judge_whose_numbers_are_all_0_or_1():
    # accuracy + shortness; the empty completion's shortness is exactly 0, and its sum too.
    grades = [
        Grade(1.0 - 0.25, plain={"accuracy": 1.0, "short": -0.25}),
        Grade(1.0, plain={"accuracy": 1.0, "short": 0.0}),
        Grade(0.0, plain={"accuracy": 0.0, "short": 0.0}),
    ]
    assert verdicts(*grades) == [True, True, False]
    assert [grade.verdict for grade in grades] == [None, None, None]  # one alone does not tell which part judges
    assert verdicts(*(Grade(0.0, plain={}) for _ in range(2))) == [None, None]  # none may judge
