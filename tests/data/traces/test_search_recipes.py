"""Recipes that search and then fine-tune on what was found, on the base model: they find, tell and train."""

import json

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.stages.search_and_distil import SearchAndDistilRun
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

SMALL = ["evaluate.n=0", "tasks.levels=[5]", "stages.0.tasks_per_round=2", "track=[]"]
ASTRO = ["stages.0.rollout.trajectories=4", "stages.0.steps=1", "stages.1.steps=1", "stages.1.tasks_per_step=1"]


def run(name, tmp_path, *keys):
    path = train(load_recipe(name, [*SMALL, *keys, f"output={tmp_path}"]))
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_astro_fine_tunes_on_searches_told_as_one_and_then_counts_doubts(tmp_path, monkeypatch):
    told = distilled(monkeypatch)
    lines = run("astro", tmp_path, *ASTRO)
    assert [line["stage"] for line in lines] == ["search-and-distil", "online"]
    assert lines[0]["traces/found"] == len(told) > 0
    assert lines[0]["traces/not_right"] == 0
    assert any("?" in trace.text for trace in told)
    assert all(trace.text.count("?") <= 2 for trace in told)
    assert "reward/part/occurrences" in lines[1]


def test_templates_that_the_model_cannot_write_are_refused_before_anything_is_searched(tmp_path):
    with pytest.raises(RecipeError, match=r"traces\.reflection: got '…'"):
        run("astro", tmp_path, "stages.0.traces.reflection=…")


def distilled(monkeypatch):
    """Filled with the traces that a run has when it fine-tunes."""
    told, batch = [], SearchAndDistilRun.batch

    def recorded(self):
        told.extend(self.traces)
        return batch(self)

    monkeypatch.setattr(SearchAndDistilRun, "batch", recorded)
    return told
