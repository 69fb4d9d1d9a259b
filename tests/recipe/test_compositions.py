"""Random combinations of curriculum, guides, rollout, reward, credit, objective, learner and engine settings.

More of them: ``make compositions NUMBER=2000``.
"""

import pytest
from compositions import tried

CHUNK = 20


@pytest.mark.parametrize("first", range(0, 10 * CHUNK, CHUNK))
def test_random_combinations_run_two_steps_or_are_refused_before_a_model_loads(first, tmp_path):
    outcomes = [tried(seed, tmp_path) for seed in range(first, first + CHUNK)]
    refused = [line for line in outcomes if line != "ran"]
    assert len(refused) <= CHUNK // 3, refused
    assert all("allowed:" in line for line in refused), refused
