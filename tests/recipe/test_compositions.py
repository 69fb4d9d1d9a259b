"""Random combinations of curriculum, guides, rollout, reward, credit, objective, learner and engine settings.

More of them: ``make compositions NUMBER=2000``.
"""

import functools
import json
from itertools import combinations
from random import Random
from typing import Any

import pytest
from compositions import SMALL, prepare, random_recipe, tried

from lyceum.recipe.schema import parse
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

NUMBER, CHUNK, REFUSED, DRAWN = 100, 20, 15, 4000
"""Recipes that are tried, of each test, at most that are refused as they are read; of so many that are drawn."""


@functools.cache
def seeds() -> list[int]:
    """Of those drawn, the recipes with the most kinds, then pairs of kinds, that none before has, one after another;
    last some that were refused on the way. The 85 others hold as many pairs as 200 that are taken as they come."""
    of_each = [components(random_recipe(Random(seed))["stages"]) for seed in range(DRAWN)]
    pairs = {seed: {*combinations(sorted(found), 2)} for seed, found in enumerate(of_each)}
    chosen, refused, seen = list[int](), list[int](), set[tuple[str, str]]()
    while len(chosen) + len(refused[:REFUSED]) < NUMBER:
        seed = max(pairs, key=lambda seed: (len(of_each[seed] - seen), len(pairs[seed])))
        met = pairs.pop(seed)
        seen |= of_each[seed]
        try:
            parse(random_recipe(Random(seed)) | {"name": f"run-{seed}"})
        except RecipeError:
            refused.append(seed)
            continue
        chosen.append(seed)
        for left in pairs.values():
            left -= met
    tried_out = [*chosen, *refused[:REFUSED]]
    assert set().union(*(of_each[seed] for seed in tried_out)) == set().union(*of_each)
    return tried_out


def components(value: Any, slot: str = "") -> set[tuple[str, str]]:
    """(slot, kind) of every component in stages."""
    if isinstance(value, list):
        return {found for item in value for found in components(item, slot)}
    if not isinstance(value, dict):
        return set()
    own = {(slot, value["kind"])} if "kind" in value else set()
    return own.union(*(components(inner, name) for name, inner in value.items()))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.mark.parametrize("chunk", range(NUMBER // CHUNK))
def test_random_combinations_run_two_steps_or_are_refused_before_a_model_loads(chunk, prepared, tmp_path):
    outcomes = [tried(seed, prepared, tmp_path) for seed in seeds()[chunk :: NUMBER // CHUNK]]
    refused = [line for line in outcomes if line != "ran"]
    assert len(refused) <= CHUNK // 4, refused
    assert all("allowed:" in line for line in refused), refused


MCTS = {"kind": "mcts", **SMALL["rollout"]["mcts"], "sampling": {"max_completion_tokens": 8}}
SCAFFOLD = {"kind": "scaffold", "exempt": 0.0}
SEARCH = {"kind": "search-where-hard", **SMALL["guidance"]["search-where-hard"]}
PREFIXES = {"kind": "good-prefixes", "pool": 2, "step": {"tokens": 3}, "accept": 0.0, "spread": 0.0}


@pytest.mark.parametrize(
    ("stage", "acted"),
    [
        ({"guidance": [SCAFFOLD], "rollout": MCTS}, "guidance/scaffold/groups/guided"),
        ({"curriculum": PREFIXES, "guidance": ["prefix"], "rollout": MCTS}, "guidance/prefix/groups/prefix"),
        (
            {
                "curriculum": {"kind": "knapsack", "samples": 4, "most": 6},
                "guidance": [SCAFFOLD, SEARCH],
                "rollout": {"kind": "flat", "samples": 4, "sampling": {"max_completion_tokens": 8}},
            },
            "guidance/scaffold/groups/guided",
        ),
        (
            {
                "curriculum": {"kind": "knapsack", "samples": 4, "most": 6},
                "guidance": [SCAFFOLD, SEARCH],
                "rollout": MCTS,
                "credit": "node-value",
            },
            "guidance/scaffold/groups/guided",
        ),
    ],
)
def test_hints_and_prefixes_go_with_searches(stage, acted, tmp_path):
    stage = {"kind": "online", "steps": 3, "tasks_per_step": 4, "credit": "group"} | stage
    tasks = {"kind": "chain", "levels": [1, 2, 3]}
    recipe = {"model": "scratch", "tasks": tasks, "reward": "test-composed", "evaluate": {"n": 0}, "stages": [stage]}
    run = train(parse(recipe | {"name": "run", "output": str(tmp_path)}))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sum(line[acted] for line in lines) > 0
