"""The recipe as a whole: it searches, trains on trees, and leaves the search in the metadata."""

import json

import pyarrow.parquet
import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.training.view.token_tree import token_tree

TINY = ["steps=2", "tasks_per_step=2", "tasks.levels=[6]", "evaluate.n=0", "rollouts_every=1"]
SHORT = ["rollout.trajectories=4", "rollout.width=2"]


@pytest.mark.parametrize(
    "ablation",
    [
        [],
        ["rollout.step={by: entropy, nats: 0.5, tokens: 80}", "rollout.depth=20", "rollout.distinct=true"],
    ],
)
def test_the_recipe_and_its_ablations_take_two_steps(ablation, tmp_path):
    path = train(load_recipe("deepsearch", [*TINY, *SHORT, *ablation, f"output={tmp_path}"]))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    metrics = {k.removeprefix("guidance/search-where-hard/"): v for k, v in lines[0].items()}
    assert metrics["searched/tasks"] + metrics["easy/tasks"] == 2
    assert lines[1]["curriculum/tasks/round"] == 64
    rows = pyarrow.parquet.read_table(path / "rollouts" / "step-000001.parquet").to_pylist()
    assert 0 < len(rows) <= 4 * metrics["searched/tasks"]
    for row in rows:
        metadata = json.loads(row["metadata"])
        assert metadata["mcts"]["backed_up"] <= 4
        stats = [json.loads(node) for node in row["node_stats"]]
        assert len(stats) == len(row["nodes"])
        assert stats[0]["visits"] == metadata["mcts"]["backed_up"], "every backup passes the prompt"
        assert stats[-1]["value"] in (-1, 1)
        assert "".join(row["node_texts"][1:]) == row["completion"]
    first = [row for row in rows if row["tree"] == rows[0]["tree"]]
    runs = token_tree(first)
    assert runs[0]["stats"] == [json.loads(rows[0]["node_stats"][0])]
    assert sum(run["text"] == "" for run in runs) == 0
