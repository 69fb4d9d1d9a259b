"""ViCO on a tiny model: what each of its two parts trains, and towards what."""

import itertools

import pytest
import torch

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.core.pictures import COMPRESSED, FULL
from lyceum.recipe.schema import load_recipe
from lyceum.run.reader import read_run_folder
from lyceum.training.stages.session import Session
from lyceum.training.train import check, train
from lyceum.utils.errors import Interrupted, RecipeError

SMALL = [
    *("evaluate.n=0", "track=[]", "digests=true", "checkpoint_every=1", "stages.start.steps=1"),
    *("stages.start.tasks_per_step=2", "stages.vico.steps=4", "stages.vico.router_steps=2"),
    *("stages.vico.tasks_per_step=4", "stages.vico.learner.warmup_steps=0"),
]


def recipe(folder, name, *keys):
    return load_recipe("vico", [*SMALL, f"output={folder}", f"name={name}", *keys])


@pytest.fixture
def weights(monkeypatch):
    """The weights after each step, by part."""
    found = []
    finish = Session.finish_step

    async def finishing(self, of, metrics, **how):
        parts = {"model": [], "connector": [], "router": []}
        for name, weight in self.policy.module.named_parameters():
            part = next((each for each in ("connector", "router") if f"picture_rates.{each}" in name), "model")
            parts[part].append(weight.detach().flatten().clone())
        found.append({part: torch.cat(each) for part, each in parts.items()})
        return await finish(self, of, metrics, **how)

    monkeypatch.setattr(Session, "finish_step", finishing)
    return found


def changed(before, after):
    return {part for part in before if not torch.equal(before[part], after[part])}


def test_the_router_is_trained_alone_and_after_everything_else(tmp_path, weights):
    run = read_run_folder(train(recipe(tmp_path, "run")))
    assert [changed(*pair) for pair in itertools.pairwise(weights)] == [
        {"model", "connector"}, {"model", "connector"}, {"router"}, {"router"},
    ]  # fmt: skip
    steps = [metrics for metrics in run.metrics if metrics["stage"] == "vico"]
    assert all("rate/kl" in metrics for metrics in steps[:2])
    for metrics in steps[2:]:
        # The reference is the model as the stage began, at the full rate: two updates away at the full rate too.
        assert 0 < metrics["rate/kl_full"] < metrics["rate/kl_compressed"]
    # The policy is where the reference is before its first update; the compressed pictures are all that differs.
    assert steps[0]["rate/kl"] > 0


def test_consistency_training_brings_the_compressed_answers_to_the_full_ones(tmp_path):
    keys = ["stages.vico.steps=25", "stages.vico.router_steps=1", "stages.start.steps=2"]
    run = read_run_folder(train(recipe(tmp_path, "run", *keys)))
    kl = [metrics["rate/kl"] for metrics in run.metrics if "rate/kl" in metrics]
    assert sum(kl[-4:]) < 0.5 * sum(kl[:4])


def test_a_picture_is_labelled_by_its_ratio_among_the_latest_ones(tmp_path, monkeypatch):
    from lyceum.papers.cascade_rl.stages_vico import VisualConsistencyRun

    kl = {FULL: [0.1, 0.2, 0.1, 0.0], COMPRESSED: [0.3, 0.2, 0.05, 1e-9]}
    labels, rates = [], iter([FULL, COMPRESSED] * 2)
    monkeypatch.setattr(VisualConsistencyRun, "kl", lambda self, trees: torch.tensor(kl[next(rates)]))
    update = VisualConsistencyRun.update_router

    def updating(self, trees, full):
        labels.append((full.tolist(), list(self.ratios)))
        return update(self, trees, full)

    monkeypatch.setattr(VisualConsistencyRun, "update_router", updating)
    train(recipe(tmp_path, "run", "stages.vico.window=6"))
    # Ratios 3, 1, 0.5 and, of a KL that is 0 at the full rate, 1e-9 / 1e-8 = 0.1: the median is 0.75.
    assert labels[0][0] == [True, True, False, False]
    assert labels[0][1] == pytest.approx([3, 1, 0.5, 0.1])
    # The first two are beyond a window of six.
    assert labels[1][1] == pytest.approx([0.5, 0.1, 3, 1, 0.5, 0.1])


def test_a_run_resumes_to_the_bit_among_the_routers_steps(tmp_path):
    whole = train(recipe(tmp_path, "whole"))
    with pytest.raises(Interrupted):
        train(recipe(tmp_path, "stopped"), interrupted=iter([False] * 3 + [True]).__next__)
    stopped = train(recipe(tmp_path, "stopped"), resume=True)
    assert first_difference(read_digests(whole), read_digests(stopped)) is None
    for file in ("model.safetensors", "picture_rates.safetensors"):
        assert (whole / "model" / file).read_bytes() == (stopped / "model" / file).read_bytes()


def test_what_cannot_be_trained_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"model\.rate: got none, but stage 'vico' trains two rates; allowed: routed"):
        train(recipe(tmp_path, "run", "model=scratch-pictures"))
    with pytest.raises(RecipeError, match="router_steps: got 4 of 4 steps; allowed: fewer"):
        recipe(tmp_path, "run", "stages.vico.router_steps=4")
    with pytest.raises(RecipeError, match=r"objective\.kind: got 'sft' in stage 'vico'; allowed: consistency"):
        check(recipe(tmp_path, "run", "stages.vico.objective=sft"))
