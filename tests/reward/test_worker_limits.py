"""A completion that exceeds a limit of its worker is incorrect where what the task gives is not the cause."""

import pytest
from leaves import grades, task

from lyceum.reward.format import Format
from lyceum.reward.json_schema import JsonSchemaReward
from lyceum.reward.regex import RegexReward


@pytest.mark.parametrize(
    ("settings", "columns"),
    [(RegexReward, {"pattern": "a"}), (JsonSchemaReward, {"json_schema": "{}"})],
    ids=["regex", "json-schema"],
)
def test_an_answer_over_its_limits_is_incorrect_unless_the_tasks_own_is(monkeypatch, settings, columns):
    monkeypatch.setattr(settings, "factory", "worker_jobs:hangs")
    part = settings(workers=1, timeout_seconds=0.7)
    over, dies, right = grades(part, task(**columns), "hang", "die", "else")
    assert [grade.outcome for grade in (over, dies, right)] == [0.0, 0.0, 1.0]
    assert over.correct is False
    [own] = grades(part, task(**dict.fromkeys(columns, "hang")), "x")
    assert own.outcome is None
    assert "within 0.7 seconds" in (own.reason or "")


def test_a_completion_on_which_a_pattern_never_ends_has_not_the_form():
    texts = ("a" * 60, "aab")
    found = grades(Format(pattern="(a+)+b", timeout_seconds=0.7), task(), *texts)
    assert [grade.outcome for grade in found] == [0.0, 1.0]
