"""Each tree recipe trains: rollout, credit and objective fit together on a model's own draws."""

import json

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train

TINY = ["model=scratch", "steps=2", "tasks_per_step=2", "tasks.levels=[2]", "evaluate.n=0", "rollouts_every=1"]
SHORT = {
    "treepo": ["rollout.sampling.max_completion_tokens=6", "rollout.segment_tokens=2", "collect.keep=all"],
    "latr": ["rollout.sampling.max_completion_tokens=6", "rollout.shares=[[0.0, 1.0]]", "rollout.look_aheads=[2, 3]"],
    "cure": ["stages.0.rollout.sampling.max_completion_tokens=6", "collect.keep=all", "reward=task"],
    "treerl": ["rollout.sampling.max_completion_tokens=6"],
    "salt": ["rollout.sampling.max_completion_tokens=6"],
}


@pytest.mark.parametrize("name", SHORT)
def test_each_tree_recipe_takes_two_steps(name, tmp_path):
    path = train(load_recipe(name, [*TINY, *SHORT[name], f"output={tmp_path}"]))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    stages = 2 if name == "cure" else 1
    assert [line["step"] for line in lines] == list(range(1, 2 * stages + 1))
    assert all(line["tokens_sampled"] > 0 and line["ungraded"] == 0 for line in lines)
    assert lines[0]["completion_tokens/mean"] > 0
