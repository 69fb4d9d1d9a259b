"""Any curriculum stands beside any guide, rollout, credit and objective: one loop, no special cases."""

import json

import pytest

from lyceum.core.component import kinds
from lyceum.recipe.schema import parse
from lyceum.training.train import train

NEEDED = {
    "knapsack": {"samples": 2, "most": 4},
    "scaffold": {"exempt": 0.0},
    "multi-guidance": {"replaced": 1, "answer": {"after": "#"}},
    "rubric-scaffold": {"order": "listed"},
    "seele": {"rounds": 2},
    "search-where-hard": {"direct": {"kind": "flat", "samples": 2, "sampling": {"max_completion_tokens": 4}}},
}
"""What a component cannot do without, or what two steps of four tasks are too few for."""

TASKS = {"multi-guidance": "chain-teachers"}
"""Tasks that a guide cannot do without, other than chains."""

# Every curriculum with some guide: tests/recipe/test_compositions.py.
PAIRS = [("self-evolving", guide) for guide in kinds("guidance")]
PAIRS += [("knapsack", "guide-grpo"), ("difficulty-weight", "seele"), ("prompt-value", "demonstrations")]


@pytest.mark.parametrize(("curriculum", "guide"), PAIRS)
def test_every_guide_runs_with_a_curriculum(curriculum, guide, tmp_path):
    stage = {
        "kind": "online",
        "steps": 2,
        "tasks_per_step": 4,
        "curriculum": {"kind": curriculum, **NEEDED.get(curriculum, {})},
        "guidance": [{"kind": guide, **NEEDED.get(guide, {})}],
        "rollout": {"kind": "flat", "samples": 2, "sampling": {"max_completion_tokens": 4}},
    }
    tasks = {"kind": TASKS.get(guide, "chain"), "levels": [1, 2, 3]}
    recipe = {"model": "scratch", "tasks": tasks, "evaluate": {"n": 0}}
    run = train(parse(recipe | {"stages": [stage], "name": "run", "output": str(tmp_path)}))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert any(key.startswith(f"guidance/{guide}/") for key in lines[-1])
