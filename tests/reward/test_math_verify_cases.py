"""The reward ``math`` on math-verify's own test cases: it agrees, but where it differs on purpose, with the reason."""

import json
from pathlib import Path

import pytest

from lyceum.reward.math_worker import checker

SOURCE, *CASES = map(json.loads, (Path(__file__).parent / "math_verify_cases.jsonl").read_text().splitlines())


@pytest.fixture(scope="module")
def check():
    return checker()


def test_it_agrees_with_math_verify_where_the_file_gives_no_reason(check):
    # Every third here; all of them in benchmarks/verifiers.py.
    chosen = [case for number, case in enumerate(CASES) if number % 3 == 0 or "differs" in case]
    given = [check({"answers": [case["answer"]], "found": case["completion"], "boxed": False}) for case in chosen]
    assert not [
        case
        for case, verdict in zip(chosen, given, strict=True)
        if (verdict == case["math_verify"]) == ("differs" in case)
    ]


def test_it_is_laxer_than_math_verify_only_in_three_cases():
    differs = [case for case in CASES if "differs" in case]
    assert (len(CASES), len(differs)) == (190, 15)
    assert sum(not case["math_verify"] for case in differs) == 3
