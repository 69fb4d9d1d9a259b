"""Numbers on their way into JSON, and numbers whose sum leaves what a float can hold."""

import ast
import json
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from statistics import StatisticsError, fmean

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lyceum
from lyceum.utils.numbers import evenly, figure, finite_line, mean, real, shown, to_json

BETWEEN_OUR_PROCESSES = {
    *("reward/pool.py", "reward/_worker.py", "sandbox/backends.py"),
    *(f"sandbox/inside/{name}.py" for name in ("data", "judge", "program")),
}
"""Both ends are Python's json, and a task's column must reach a user's function as it is, a nan as a nan."""


def read(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, None),
        (-math.inf, None),
        (np.float32("nan"), None),
        (torch.tensor(math.inf), None),
        (Decimal("NaN"), None),
        (Decimal("sNaN"), None),
        (10**400, None),  # JSON could hold it, a browser reads it as Infinity
        (Fraction(10**400, 3), None),
        (1.5, 1.5),
        (1e308, 1e308),
        (True, True),
        (np.bool_(False), False),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.longdouble("0.5"), 0.5),
        (torch.tensor([2.5]), 2.5),
        (Decimal("1.25"), 1.25),
        (Fraction(1, 4), 0.25),
        (2**63 - 1, 2**63 - 1),  # a seed: to the last digit
        (2**64 - 1, 2**64 - 1),
        (10**30, 1e30),
        (np.array([1.0, math.nan]), [1.0, None]),
        ({1: (math.nan, "nan")}, {"1": [None, "nan"]}),
    ],
    ids=repr,
)
def test_what_json_holds_is_finite_and_otherwise_the_number_that_it_was(value, written):
    found = read(to_json([value]))[0]
    assert found == written
    assert type(found) is type(written)


NUMBERS = st.none() | st.booleans() | st.integers() | st.floats() | st.decimals() | st.fractions() | st.text()


@given(st.recursive(NUMBERS, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.floats(), inner)))
def test_no_nesting_of_numbers_gives_a_text_that_a_browser_cannot_read(value):
    read(to_json(value, other=str))


def test_what_is_no_plain_value_is_refused_or_written_as_its_text():
    with pytest.raises(TypeError, match="got a complex; allowed: numbers"):
        to_json({"x": 1j})
    assert read(to_json([1j, np.complex64(2), np.clongdouble(3), {4}], other=str)) == ["1j", "(2+0j)", "(3+0j)", "{4}"]


def test_a_line_says_of_a_metric_that_is_not_finite_what_it_was():
    given = {"loss": math.nan, "norm": torch.tensor(-math.inf), "huge": 10**400, "n": np.int64(3), "stage": "rl"}
    line = finite_line({name: figure(name, value) for name, value in given.items()})
    assert line == {
        **{"loss": None, "loss/nonfinite": "nan", "norm": None, "norm/nonfinite": "-inf"},
        **{"huge": None, "huge/nonfinite": "inf", "n": 3, "stage": "rl"},
    }
    with pytest.raises(TypeError, match="loss: got a list; allowed: a number"):
        figure("loss", [1.0])


def test_the_mean_of_numbers_whose_sum_is_no_float_is_one_all_the_same():
    assert mean([1e308, 1e308, 1e308]) == 1e308
    assert mean([1.5e308, -1.5e308, 1.5e308]) == 5e307
    assert mean([float.fromhex("0x1.fffffffffffffp+1023")] * 7) == float.fromhex("0x1.fffffffffffffp+1023")
    assert mean([math.inf, 1e308, 1e308]) == math.inf
    assert math.isnan(mean([math.inf, -math.inf]))
    with pytest.raises(StatisticsError):
        mean([])


@given(st.lists(st.floats(-1e15, 1e15), min_size=1))
def test_the_mean_of_ordinary_numbers_is_pythons(values):
    assert mean(values) == fmean(values)


@pytest.mark.parametrize(
    ("value", "number"),
    [(True, 1.0), (Decimal("1.5"), 1.5), (Fraction(1, 2), 0.5), (np.float16(2), 2.0), (torch.tensor(3), 3.0)],
)
def test_a_reward_may_be_any_real_number(value, number):
    assert real(value, "the reward") == number


@pytest.mark.parametrize("value", [1.1e15, -(10**16), 10**400, -(10**400), Fraction(10**5000, 3), Decimal("1e400")])
def test_a_reward_whose_square_float32_cannot_hold_is_refused_by_name(value):
    with pytest.raises(ValueError, match=r"the reward is too large a number \(.*\); allowed: magnitudes up to 1e\+15"):
        real(value, "the reward")
    assert real(-1e15, "the reward") == -1e15


def test_another_limit_may_hold_for_what_is_no_reward():
    assert real(1e300, "a metric", largest=1e308) == 1e300


@pytest.mark.parametrize("value", ["nan", 1j, np.complex64(1), np.clongdouble(1), [1.0], None])
def test_what_is_no_real_number_is_no_reward(value):
    with pytest.raises(TypeError, match=r"the reward is .*; allowed: a number or None"):
        real(value, "the reward")


def test_infinite_rewards_are_left_to_the_caller():
    assert [real(value, "it") for value in (math.inf, Decimal("-Infinity"))] == [math.inf, -math.inf]
    assert math.isnan(real(Decimal("NaN"), "it"))


def test_a_number_of_300_digits_is_shown_in_a_few():
    assert [shown(x, 3) for x in (0.5, -1234.5678, 1e308, math.nan)] == ["0.500", "-1234.568", "1e+308", "nan"]


def test_nothing_is_written_as_json_but_finite_numbers():
    """Every call that makes JSON text refuses nan by name; the one for all is ``utils.numbers.to_json``."""
    root = Path(lyceum.__file__).parent
    found = Counter()
    for file in sorted(root.rglob("*.py")):
        where = file.relative_to(root).as_posix()
        text = file.read_text("utf-8")
        if "dump" not in text and "JSONEncoder" not in text:
            continue
        tree = ast.parse(text)
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert not imported & {"dumps", "JSONEncoder"}, f"{where}: json.dumps under another name"
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            writes = ast.unparse(call.func) in ("json.dumps", "json.dump", "json.JSONEncoder")
            if writes and where not in BETWEEN_OUR_PROCESSES:
                how = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
                assert how.get("allow_nan") == "False", f"{where}, line {call.lineno}: use utils.numbers.to_json"
                found[where] += 1
    assert set(found) == {
        "api/rows.py",
        "reward/user_code.py",
        "engine/constraint/json_schema.py",
        "environment/tools.py",
        "reward/function_worker.py",
        "reward/json_schema.py",
        "run/codec.py",
        "runtime/conversations.py",
        "tasks/reasoning_gym.py",
        "utils/numbers.py",
    }


def test_shares_differ_by_one_at_most():
    assert evenly(7, 3) == [3, 2, 2]
    assert evenly(2, 3) == [1, 1, 0]
    assert evenly(2, 0) == []
