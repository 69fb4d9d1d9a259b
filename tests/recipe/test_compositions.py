"""Random combinations of curriculum, guides, rollout, reward, credit, objective, learner and engine settings.

More of them: ``make compositions NUMBER=2000``.
"""

import functools
import json
from random import Random
from typing import Any

import pytest
from compositions import SMALL, prepare, random_recipe, tried

from lyceum.recipe.schema import parse
from lyceum.training.train import train

NUMBER, CHUNK = 200, 20


@functools.cache
def of_every_kind(number: int) -> list[int]:
    """Seeds of so many recipes, first those that have a component that none before them has."""
    seen: set[tuple[str, str]] = set()
    first: list[int] = []
    for seed in range(20 * number):
        (stage,) = random_recipe(Random(seed))["stages"]
        if not (found := components(stage)) <= seen:
            seen |= found
            first.append(seed)
    assert len(first) <= number
    return [*first, *(seed for seed in range(20 * number) if seed not in first)][:number]


def components(value: Any, slot: str = "") -> set[tuple[str, str]]:
    """(slot, kind) of every component in a stage."""
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
    outcomes = [tried(seed, prepared, tmp_path) for seed in of_every_kind(NUMBER)[chunk :: NUMBER // CHUNK]]
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
