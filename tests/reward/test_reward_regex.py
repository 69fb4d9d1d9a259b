"""The reward ``regex``: RE2, which takes linear time whatever the expression."""

import pytest
from leaves import Source, grades, outcomes, task
from pydantic import ValidationError

from lyceum.reward.regex import RegexReward
from lyceum.utils.errors import RecipeError


@pytest.fixture(scope="module", autouse=True)
def a_worker_for_all_tests():
    return RegexReward(workers=1).build(Source(task()))


def test_the_whole_answer_must_match_unless_a_search_is_asked_for():
    part = {"pattern": r"\d{2}:\d{2}", "extract": {"tags": "answer"}, "workers": 1}
    texts = ("<answer>07:30</answer>", "<answer>at 07:30</answer>", "07:30", "<answer>7:30</answer>")
    assert outcomes(RegexReward(**part), task(), *texts) == [1.0, 0.0, 0.0, 0.0]
    assert outcomes(RegexReward(**part, match="search"), task(), *texts) == [1.0, 1.0, 0.0, 0.0]


def test_the_pattern_may_be_a_tasks_own_and_case_may_not_count():
    part = RegexReward(case=False, workers=1)
    assert outcomes(part, task(pattern="ja|nein"), "JA", "Nein", "vielleicht") == [1.0, 1.0, 0.0]
    for columns, reason in (({}, "no column 'pattern'"), ({"pattern": 3}, "no text"), ({"pattern": "(?=a)"}, "RE2")):
        [grade] = grades(part, task(**columns), "ja")
        assert grade.outcome is None
        assert reason in grade.reason


@pytest.mark.parametrize("pattern", ["(", "(?<=a)b", r"(a)\1", "a" * 10_001, "a{1000}{1000}", "\ud800"])
def test_what_is_no_expression_or_needs_backtracking_is_refused_at_once(pattern):
    with pytest.raises(ValidationError):
        RegexReward(pattern=pattern)


def test_a_catastrophic_expression_takes_no_longer_than_another():
    # Python's re needs about 2 ** 300_000 steps here.
    assert outcomes(RegexReward(pattern="(a|a)*(a|aa)+(a*)*$b", workers=1), task(), "a" * 300_000 + "c") == [0.0]


def test_tasks_without_the_column_are_refused_before_a_run():
    RegexReward().check_tasks(Source(task(pattern="a")))
    RegexReward(pattern="a").check_tasks(Source(task()))
    with pytest.raises(RecipeError, match="'pattern', which task 't/1' has not"):
        RegexReward().check_tasks(Source(task()))
