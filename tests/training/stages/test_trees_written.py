"""A run with ``trees_every`` leaves its trees, and the same results as without."""

import shutil

import pytest
import tiny_rewards  # noqa: F401 - its reward
import torch

from lyceum.analysis.differences import read_digests
from lyceum.core.group import flatten
from lyceum.recipe.schema import load_recipe
from lyceum.run.digests import step_digests
from lyceum.run.trees import Heading, read_trees
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY = [
    *("model=scratch", "evaluate.n=0", "tasks_per_step=2", "rollout.samples=3", "reward=test-letters", "digests=true"),
    *("rollout.sampling.max_completion_tokens=6", "checkpoint_every=2", "track=[]", "steps=5"),
]


def run(folder, name, *keys, **how):
    return train(load_recipe("grpo", [*TINY, f"output={folder}", f"name={name}", *keys]), **how)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run(folder, "without")
    run(folder, "every", "trees_every=1")
    return folder


def written(path):
    return sorted(file.name for file in (path / "trees").glob("*"))


def test_by_default_no_trees_are_written(runs):
    assert not (runs / "without/trees").exists()


def test_writing_trees_changes_no_result(runs):
    assert read_digests(runs / "every") == read_digests(runs / "without")


def test_the_trees_of_each_step_are_those_that_were_sampled(runs):
    digests = read_digests(runs / "every")
    for step in range(1, 6):
        found = read_trees(runs / f"every/trees/step-{step:06d}.parquet")
        assert found.heading == Heading(step, stage=0, first_step=0)
        trees = [group.tree for group in found.groups]
        forest = flatten(found.trained)
        again = step_digests(trees, forest, None, {}, torch.nn.Identity())
        for part in ("draw", "generation", "grades", "forest"):
            assert again[part] == digests[step][part]


def test_every_second_step_begins_from_a_checkpoint_of_every_second(tmp_path):
    path = run(tmp_path, "second", "trees_every=2")
    assert written(path) == [f"step-00000{step}.parquet" for step in (1, 3, 5)]


def test_a_resumed_run_leaves_the_same_trees(runs, tmp_path):
    asked = iter([False, False, False])
    with pytest.raises(Interrupted):
        run(tmp_path, "cut", "trees_every=1", interrupted=lambda: next(asked, True))
    # What a kill leaves: trees of steps after the checkpoint, and a file half written.
    for name in ("step-000005.parquet", ".partial-7-step-000005.parquet"):
        (tmp_path / "cut/trees" / name).write_bytes(b"torn")
    run(tmp_path, "cut", "trees_every=1", resume=True)
    assert written(tmp_path / "cut") == written(runs / "every")
    for name in written(runs / "every"):
        assert (tmp_path / "cut/trees" / name).read_bytes() == (runs / "every/trees" / name).read_bytes()


def test_an_overwritten_run_leaves_none_of_its_trees(runs, tmp_path):
    shutil.copytree(runs / "every", tmp_path / "old")
    run(tmp_path, "old", "steps=1", overwrite=True)
    assert not (tmp_path / "old/trees").exists()


def test_a_search_leaves_the_trees_of_its_rounds(tmp_path):
    keys = ["model=scratch", "evaluate.n=0", "track=[]", "trees_every=100", f"output={tmp_path}", "checkpoint_every=0"]
    recipe = load_recipe("rest-mcts", [*keys, "stages.0.rounds=2", "stages.0.steps=2", "stages.0.tasks_per_round=2"])
    found = [read_trees(file) for file in sorted((train(recipe) / "trees").glob("*"))]
    assert found
    assert all(len(step.trees) == 2 for step in found)
