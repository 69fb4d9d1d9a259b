"""The reward ``json-schema``: the form of a document, checked without fetching anything."""

import pytest
from leaves import Source, grades, outcomes, task
from pydantic import ValidationError

from lyceum.reward.base import combine
from lyceum.reward.exact import Exact
from lyceum.reward.json_schema import JsonSchemaReward

POINT = {
    "type": "object",
    "required": ["x"],
    "additionalProperties": False,
    "properties": {"x": {"type": "integer", "minimum": 0}, "name": {"pattern": "^(a|aa)+$"}},
}


@pytest.fixture(scope="module", autouse=True)
def a_worker_for_all_tests():
    return JsonSchemaReward(workers=1).build(Source(task()))


def test_a_document_is_correct_where_the_schema_allows_it():
    texts = (
        '{"x": 3}',
        '{"x": 3, "name": "aaa"}',
        '{"x": -1}',
        '{"y": 3}',
        "{}",
        "3",
        "",
        '{"x": 3} and more',
        '{"x": 3',
    )
    assert outcomes(JsonSchemaReward(json_schema=POINT, workers=1), task(), *texts) == [1.0, 1.0, *[0.0] * 7]


def test_the_last_closed_code_block_may_hold_it():
    part = JsonSchemaReward(json_schema=POINT, extract="fenced", workers=1)
    texts = (
        'First\n```json\n{"x": 3}\n```\nDone',
        '```\n{"y": 3}\n```\n```\n{"x": 3}\n```',
        '```\n{"x": 3}',
        '{"x": 3}',
    )
    assert outcomes(part, task(), *texts) == [1.0, 1.0, 0.0, 0.0]


def test_keys_given_twice_numbers_that_are_none_and_what_is_beyond_the_limits_are_incorrect():
    part = JsonSchemaReward(json_schema=POINT, max_depth=4, max_characters=100, workers=1)
    deep, long, many = '{"x": [[[[[1]]]]]}', '{"x": 3' + " " * 100 + "}", '{"x": ' + "9" * 30 + "}"
    assert outcomes(part, task(), '{"x": 1, "x": 2}', '{"x": NaN}', deep, long, many) == [0.0] * 5
    assert outcomes(JsonSchemaReward(json_schema={}, max_depth=4, workers=1), task(), "[[[[[[1]]]]]]", "[[1]]") == [
        0.0,
        1.0,
    ]


def test_a_tasks_own_schema_may_be_an_object_or_its_text_and_reads_no_other_document(tmp_path):
    part = JsonSchemaReward(workers=1)
    assert outcomes(part, task(json_schema=POINT), '{"x": 3}') == [1.0]
    assert outcomes(part, task(json_schema='{"type": "integer"}'), "3", '"3"') == [1.0, 0.0]
    (tmp_path / "other.json").write_text("{}")
    for schema in (
        {"$ref": "http://127.0.0.1:9/a.json"},
        {"$ref": (tmp_path / "other.json").as_uri()},
        "{",
        {"type": 3},
    ):
        [grade] = grades(part, task(json_schema=schema), "3")
        assert grade.outcome is None
        assert grade.reason.startswith("json-schema: json_schema:")


@pytest.mark.parametrize(
    "schema", [{"type": "nope"}, {"$ref": "http://127.0.0.1:9/a"}, {"pattern": "(?=a)"}, {"a": 1e999}]
)
def test_what_is_no_schema_is_refused_at_once(schema):
    with pytest.raises(ValidationError):
        JsonSchemaReward(json_schema=schema)


def test_an_empty_document_of_the_right_form_earns_nothing_beside_a_part_that_compares():
    parts = [JsonSchemaReward(json_schema={"type": "object"}, workers=1, weight=0.1), Exact(extract={"json": "x"})]
    assert combine(parts, None) is not None
    assert [grade.outcome for grade in grades(parts, task("3"), "{}", '{"x": "3"}')] == [0.1, 1.1]
    assert [grade.correct for grade in grades(parts, task("3"), "{}", '{"x": "3"}')] == [False, True]
