"""Any curriculum stands beside any guide, rollout, credit and objective: one loop, no special cases."""

import json

import pytest

from lyceum.recipe.schema import parse
from lyceum.training.train import train

pytestmark = pytest.mark.usefixtures("small_scratch")

NEEDED = {"knapsack": {"samples": 2, "most": 4}, "seele": {"rounds": 2}}
"""What two steps of four tasks are too few for."""

# Every curriculum and every guide with some others: tests/recipe/test_compositions.py.
PAIRS = [("knapsack", "guide-grpo"), ("difficulty-weight", "seele"), ("prompt-value", "demonstrations")]


@pytest.mark.parametrize(("curriculum", "guide"), PAIRS)
def test_curricula_that_set_samples_or_weights_run_with_a_guide(curriculum, guide, tmp_path):
    stage = {
        "kind": "online",
        "steps": 2,
        "tasks_per_step": 4,
        "curriculum": {"kind": curriculum, **NEEDED.get(curriculum, {})},
        "guidance": [{"kind": guide, **NEEDED.get(guide, {})}],
        "rollout": {"kind": "flat", "samples": 2, "sampling": {"max_completion_tokens": 4}},
    }
    tasks = {"kind": "chain", "levels": [1, 2, 3]}
    recipe = {"model": "scratch", "tasks": tasks, "evaluate": {"n": 0}}
    run = train(parse(recipe | {"stages": [stage], "name": "run", "output": str(tmp_path)}))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert any(key.startswith(f"guidance/{guide}/") for key in lines[-1])
