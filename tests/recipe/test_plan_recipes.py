"""Recipes whose objective plans a step or whose credit has state or keys, as shipped but smaller, on the base model:
their mechanisms act, and without them the weights are others."""

import json

import pytest
from safetensors.torch import load_file

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train

SMALL = ["evaluate.n=0", "track=[]", "steps=2", "tasks_per_step=6"]
SPO = ["tasks.size=8", "tasks_per_step=8"]


def run(path, recipe, *keys):
    folder = train(load_recipe(recipe, [*SMALL, *keys, f"output={path}"]))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return lines, load_file(folder / "model" / "model.safetensors")


@pytest.mark.parametrize(
    ("recipe", "keys", "acted", "off"),
    [
        ("gigpo", [], "credit/steps_compared", "credit.step_weight=0"),
        ("spo", SPO, "credit/rows_tracked", "credit.half_life=1e-9"),
        ("dpo", [], "pairs", "objective.pairs=1"),
        ("pacs", [], "groups_of_both", "objective.balance=false"),
        ("epo", [], "epo/outside", "objective.penalty=0"),
    ],
)
def test_the_mechanism_acts_and_without_it_the_weights_are_others(recipe, keys, acted, off, tmp_path):
    lines, weights = run(tmp_path / "on", recipe, *keys, *(["steps=3"] if recipe == "spo" else []))
    assert lines[-1][acted] > 0
    _, without = run(tmp_path / "off", recipe, *keys, *(["steps=3"] if recipe == "spo" else []), off)
    assert any(not weights[name].equal(without[name]) for name in weights)
