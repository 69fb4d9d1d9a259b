"""Stages with several models or roles: what the shipped recipes do beyond their lines in ``proofs.py``."""

import json
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.analysis.replay import replay
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

SMALL = ("evaluate.n=0", "tasks_per_step=3", "steps=3", "checkpoint_every=1", "digests=true")
FAST_SWAP = "roles.swap_every=1"


def trained(tmp_path, name, *overrides, recipe="cory", small=SMALL):
    train(load_recipe(recipe, [*small, f"output={tmp_path}", f"name={name}", *overrides]))
    lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
    return tmp_path / name, lines


def difference(a, b):
    found = first_difference(read_digests(a), read_digests(b))
    return None if found is None else (found.step, found.part)


@pytest.fixture(scope="module")
def cory(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("cory"), "whole", FAST_SWAP, "trees_every=1")


def test_cory_pairs_answers_and_swaps(cory):
    _, lines = cory
    assert [line["role/swaps"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert line["guidance/pioneer-observer/pairs/graded"] == 3 * 4
        assert line["role/pioneer/trajectories"] == line["role/observer/trajectories"] == 3 * 4
        assert 0 <= line["role/observer/correct"] <= 1
        assert line["model/first/loss"] != line["model/second/loss"]
    assert any(line["guidance/pioneer-observer/groups_changed/share"] > 0 for line in lines)
    for before, after in pairwise(lines):
        assert after["tokens_trained"] > before["tokens_trained"]


def test_cory_leaves_both_models(cory):
    path, _ = cory
    first, second = (load_file(path / name / "model.safetensors") for name in ("model", "models/second"))
    assert first.keys() == second.keys()
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_one_model_in_both_roles_is_another_run(cory, tmp_path):
    path, lines = trained(tmp_path, "one", "roles={}", "trees_every=1")
    assert not (path / "models").exists()
    assert "model/first/loss" not in lines[0]
    # The first step's tokens are the same, as both copies begin as one; its update is not, nor hence the second step's.
    first, second = ([replay(run, step).forest.token for run in (path, cory[0])] for step in (1, 2))
    assert torch.equal(*first)
    assert not torch.equal(*second)


def test_a_step_of_two_models_is_replayed(cory):
    path, lines = cory
    found = replay(path, 2)
    assert found.cosine == pytest.approx(1.0)
    assert found.forest.columns["model"].unique().tolist() == [0, 1]
    assert lines[1]["loss"] is not None


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["roles.play={pioneer: first}"], "got 'second', which plays no role"),
        (
            ["roles.models=[a, b]", "roles.play={pioneer: a, judge: b}"],
            "roles.play: got 'judge'; allowed: pioneer, observer",
        ),
        (["guidance=[]"], "roles.play: got 'pioneer'; allowed: none"),
        (["guidance=[pioneer-observer, {kind: prefix}]"], "allowed: it alone"),
        (["collect.keep=with-gradient"], "collect.keep: got 'with-gradient' with guidance 'pioneer-observer'"),
        (["rollout.tokens_per_step=4"], "rollout"),
        (["rollout={kind: mcts}"], "allowed: one with samples, whole in one step"),
        (["engine=vllm"], "of which a process serves one model"),
        (["value=model"], "with several models"),
        (["stages.0.kind=interleaved"], "whose fine-tuning trains one model"),
    ],
)
def test_what_does_not_go_with_roles_is_refused(overrides, said):
    with pytest.raises(RecipeError) as refused:
        load_recipe("cory", overrides)
    assert said in str(refused.value)


@pytest.fixture(scope="module")
def zero(tmp_path_factory):
    return trained(
        tmp_path_factory.mktemp("zero"),
        "whole",
        "stages.1.steps=2",
        "stages.1.tasks_per_step=4",
        recipe="absolute-zero",
        small=("evaluate.n=0",),
    )


def test_absolute_zero_as_shipped_proposes_tasks_that_are_solved_sometimes(zero):
    online = [line for line in zero[1] if line["stage"] == "online"]
    for line in online:
        assert line["guidance/proposer-solver/proposals/all"] == 4 * 4
        assert line["guidance/proposer-solver/proposals/rejected"] < 4 * 4
        assert line["guidance/proposer-solver/proposals/solved_between"] > 0
        assert line["role/solver/trajectories"] % 8 == 0
        assert line["role/proposer/trajectories"] == 4 * 4
    rejected = sum(line["guidance/proposer-solver/proposals/rejected"] for line in online)
    assert rejected > 0  # and each earned -1
    assert all(line["role/proposer/reward"] < 1 for line in online)


def test_what_switches_absolute_zeros_mechanisms_off(zero, tmp_path):
    # From the model that knows the proposer's format already.
    warm = ("evaluate.n=0", "digests=true", "steps=1", "stages.1.tasks_per_step=4", f"model={zero[0] / 'model'}")

    def run(name, *overrides):
        return trained(tmp_path, name, *overrides, recipe="absolute-zero", small=warm)[0]

    shipped = run("shipped")
    assert difference(shipped, run("one-baseline", "stages.1.credit=reinforce-plus-plus")) == (2, "credit")
    assert difference(shipped, run("harder", "stages.1.guidance.0.earns=difficulty")) == (2, "grades")


def test_one_model_in_two_roles_leaves_one_model(zero):
    path, lines = zero
    assert not (path / "models").exists()
    assert lines[-1]["role/swaps"] == 0
