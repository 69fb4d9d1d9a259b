"""Odd recipes, command lines, datasets, models and runs: every command ends as documented and destroys nothing.

``make fuzz MINUTES=60`` tries others for as long as one likes.
"""

import pytest
from fuzz_cases import Case, attack_cases, evaluation_cases, reading_cases, resume_cases, train_cases
from fuzzing import Fuzzing
from hypothesis import HealthCheck, Phase, given, settings

FEW = settings(max_examples=12, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def fuzzing():
    with Fuzzing() as fuzzing:
        yield fuzzing


@pytest.mark.timeout(600)
@pytest.mark.parametrize("of", [train_cases, resume_cases, evaluation_cases, reading_cases, attack_cases])
def test_no_traceback_no_endless_wait_nothing_destroyed(fuzzing, of):
    @FEW
    @given(of())
    def holds(case: Case) -> None:
        assert fuzzing.faults(case) == [], case.to_json()

    holds()
