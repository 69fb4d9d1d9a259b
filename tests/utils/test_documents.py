"""Text from outside becomes plain values, or a line that says why not, within limits and at once."""

import contextlib
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lyceum.utils.documents import DOCUMENT, DocumentError, DocumentLimits, read_json, read_yaml, write_yaml

FEW = DocumentLimits(characters=10_000, depth=5, values=20, digits=10)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),  # YAML 1.1 has a text here
        ("1:30", "1:30"),  # and ninety here
        ("010", 10),  # and eight
        ("1_000", 1000),
        ("0x1F", 31),
        ("2026-01-31", "2026-01-31"),  # and a date
        ("[.5, -3, +4, 1., .inf]", [0.5, -3, 4, 1.0, float("inf")]),
        ("{1: a, on: b}", {"1": "a", "on": "b"}),
        ("&a {x: &b [1], y: *b}", {"x": [1], "y": [1]}),
        ("{a: 1, <<: {a: 2, b: 3}}", {"a": 1, "b": 3}),
        ("a: {c: &i {<<: {x: 1}, x: 2}}\nb: {<<: *i}", {"a": {"c": {"x": 2}}, "b": {"x": 2}}),
        ("[<<, a]", ["<<", "a"]),  # a merge as a key alone
        ("[&a 5, {*a : x}]", [5, {"5": "x"}]),  # a text as a key alone
        ("yes", True),
        ("", None),
        ("=", "="),
    ],
)
def test_yaml_as_people_mean_it(text, value):
    assert read_yaml(text) == value


def aliases(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (aliases(9), "more than 10000 values"),  # 9 ** 9 texts in some 300 bytes
        ("m: &m {a: 1, b: 2}\n" + "n: {<<: [" + ", ".join(["*m"] * 6_000) + "]}", "more than 10000 values"),
        ("[&a " + "x" * 1000 + ", *a" * 250 + "]", "more than 200000 characters"),  # few values, and long ones
        ("[" + "x," * 20_000 + "]", "more than 10000 values"),
        ("&a [*a]", "an alias is inside the value that it refers to"),
        ("[" * 3000, "more than 50 deep"),
        # Each line holds 40 lists around the line before it: 400 inside one another, of which no 50 are written so.
        (
            "\n".join(f"a{i}: &a{i} {'[' * 40}{f'*a{i - 1}' if i else ''}{']' * 40}" for i in range(10)),
            "more than 50 deep",
        ),
        ("1" * 5000, "a number of 5000 digits"),
        ("!!python/object:os.system {}", "is not of a plain value"),
        ("!!binary aGk=", "is not of a plain value"),
        ("a: 1\na: 2", "key 'a' appears twice, line 2"),
        ("? [1]\n: 2", "a key is a list or a mapping"),
        ("\x00", "unacceptable character"),
        ("a: [1", "expected ',' or ']'"),
        ("x" * 200_001, "200001 characters"),
        ('"\\ud800"', "half of a surrogate pair"),
        ("!!bool maybe", "maybe"),
        ("!!int x", "invalid literal"),
    ],
)
def test_yaml_that_is_refused(text, said):
    with pytest.raises(DocumentError, match=said):
        read_yaml(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "more than 50 deep"),
        ("[" * 60 + "]" * 60, "more than 50 deep"),
        ("1" * 5000, "a number of 5000 digits"),
        ("NaN", "NaN is not a JSON number"),
        ('{"a": 1e999}', "too large"),
        (b"\xff", "not UTF-8"),
        ("[1,]", "character 4"),
        ('{"a": 1, "b": 2, "a": 3}', "key 'a' appears twice"),
        ('["\\ud83d"]', "half of a surrogate pair"),
        ('{"\\uDC00": 1}', "half of a surrogate pair"),
    ],
)
def test_json_that_is_refused(text, said):
    with pytest.raises(DocumentError, match=said):
        read_json(text)


def test_json_that_python_wrote_may_have_numbers_that_are_none():
    nan, infinity, large = read_json("[NaN, -Infinity, 1e999]", finite=False)
    assert math.isnan(nan)
    assert (infinity, large) == (-math.inf, math.inf)


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_both_halves_of_a_surrogate_pair_are_a_character(read):
    # json.dumps writes them so, and JSON is YAML.
    assert read('["\\ud83d\\ude00"]') == ["\U0001f600"]


def test_a_document_may_reach_each_limit_and_not_pass_it():
    assert read_yaml("[[[[[1]]]]]", limits=FEW) == [[[[[1]]]]]
    with pytest.raises(DocumentError, match="deep"):
        read_yaml("[[[[[[1]]]]]]", limits=FEW)
    assert read_json("[[[[[1]]]]]", limits=FEW) == [[[[[1]]]]]
    with pytest.raises(DocumentError, match="deep"):
        read_json("[[[[[[1]]]]]]", limits=FEW)
    # a list and its 19 texts are 20 values
    assert len(read_yaml("[" + ",".join("x" * 19) + "]", limits=FEW)) == 19
    with pytest.raises(DocumentError, match="values"):
        read_yaml("[" + ",".join("x" * 20) + "]", limits=FEW)


@given(st.text(max_size=60))
def test_any_text_is_plain_values_or_a_document_error(text):
    for read in (read_yaml, read_json):
        with contextlib.suppress(DocumentError):
            plain(read(text))


def plain(value, depth=0):
    assert value is None or isinstance(value, bool | int | float | str | list | dict)
    assert depth <= DOCUMENT.depth + 1
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        plain(inner, depth + 1)


@given(
    st.text(alphabet="0123456789.+-eE_:x~", max_size=6) | st.floats(allow_nan=False) | st.integers(-(10**30), 10**30)
)
@example("1e-4")  # a text that YAML 1.1 need not quote, and 1.2 takes for a number
def test_what_is_written_is_read_as_it_was(value):
    found = read_yaml(write_yaml({"key": [value]}))["key"][0]
    assert (found, type(found)) == (value, type(value))


def test_emoji_and_backslashes_are_written_as_people_would():
    assert write_yaml({"says": "🙂", "pattern": r"\d+"}) == "says: 🙂\npattern: \\d+\n"


def test_what_is_set_where_an_alias_stands_is_set_there_alone():
    read = read_yaml("one: &it {lr: 1}\ntwo: *it\nthree: [*it]")
    read["two"]["lr"] = 2
    assert read == {"one": {"lr": 1}, "two": {"lr": 2}, "three": [{"lr": 1}]}
