"""Stages with names: what one leaves, what a later one takes over by name, and runs resumed between them."""

import json
from pathlib import Path
from typing import Literal

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from lyceum.analysis.replay import replay
from lyceum.cli import main
from lyceum.core.settings import RewardSettings
from lyceum.core.types import Grade, Grader, TaskSource
from lyceum.recipe.schema import load_recipe, parse
from lyceum.reward.base import each
from lyceum.run import checkpoint
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")


class Digits(RewardSettings):
    """The share of digits among what was written: an untrained model's samples differ in it."""

    kind: Literal["test-share-of-digits"] = "test-share-of-digits"

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: Grade(sum(map(str.isdigit, leaf.completion)) / (1 + len(leaf.completion))))


STEPS = {"tokens": 2}
SHORT = {"max_completion_tokens": 4}
CRITIC = {
    "kind": "search-and-distil",
    "name": "critic",
    "steps": 2,
    "rounds": 2,
    "tasks_per_round": 4,
    "rollout": {"kind": "next-steps", "trajectories": 1, "others": "finish", "step": STEPS, "sampling": SHORT},
    "value": {"kind": "model", "lr": 1e-2, "batch": 8},
    "targets": "mean-outcome",
    "traces": None,
}
ACTOR = {
    "kind": "online",
    "name": "actor",
    "steps": 3,
    "tasks_per_step": 3,
    "rollout": {"kind": "next-steps", "trajectories": 2, "width": 2, "step": STEPS, "sampling": SHORT},
    "value": {"kind": "model", "from_stage": "critic"},
    "credit": "value-gain",
    "objective": "direct-advantage",
    "learner": {"lr": 1e-2},
}
RUN = {
    "model": "scratch",
    "tasks": {"kind": "chain", "levels": [1, 2]},
    "reward": "test-share-of-digits",
    "evaluate": {"n": 0},
    "checkpoint_every": 1,
    "trees_every": 1,
    "track": [],
}


def recipe(folder, name="run", stages=(CRITIC, ACTOR), **keys):
    return parse(RUN | {"name": name, "output": str(folder), "stages": list(stages)} | keys)


def lines_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k and k != "time"} for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return train(recipe(tmp_path_factory.mktemp("whole")))


def test_each_stage_leaves_models_that_open_by_themselves(whole):
    assert [line["stage"] for line in lines_of(whole)] == ["critic"] * 2 + ["actor"] * 3
    before = AutoModelForCausalLM.from_pretrained(whole / "stages/critic/model").state_dict()
    after = AutoModelForCausalLM.from_pretrained(whole / "model").state_dict()
    assert not all(torch.equal(before[name], after[name]) for name in before)
    critic = AutoModelForTokenClassification.from_pretrained(whole / "stages/critic/value")
    assert critic.score.weight.abs().sum() > 0  # it began at 0
    # What the last stage leaves is the run's own, and it trained no value model.
    assert not (whole / "value").exists()
    assert not (whole / "stages/actor").exists()


def test_without_keeping_them_only_what_is_handed_on_is_left(tmp_path):
    run = train(recipe(tmp_path, keep_stages=False))
    assert (run / "stages/critic/value").is_dir()
    assert not (run / "stages/critic/model").exists()


def test_the_second_stage_begins_with_the_value_model_that_the_first_left(tmp_path):
    with pytest.raises(Interrupted):
        train(recipe(tmp_path), interrupted=iter([False, False, True]).__next__)
    state = checkpoint.load(tmp_path / "run/checkpoints/step-000002")["state"]
    assert (state["stage"], state["first_step"], state["of_stage"]["step"]) == ("actor", 2, 0)
    left = load_file(tmp_path / "run/stages/critic/value/model.safetensors")
    taken = state["of_stage"]["sampler"]["value"]["parameters"]
    assert sum(map(torch.numel, taken)) == sum(map(torch.numel, left.values()))
    assert sorted(float(p.double().sum()) for p in taken) == sorted(float(p.double().sum()) for p in left.values())


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_stopped_in_either_stage_or_between_them_goes_on_as_if_it_had_not_been(whole, tmp_path, steps):
    with pytest.raises(Interrupted):
        train(recipe(tmp_path), interrupted=iter([False] * (steps - 1) + [True]).__next__)
    value = tmp_path / "run/stages/critic/value/model.safetensors"
    left = value.stat().st_mtime_ns if steps > 2 else None
    run = train(recipe(tmp_path), resume=True)
    assert lines_of(run) == lines_of(whole)
    for file in ("model", "stages/critic/model", "stages/critic/value"):
        assert (run / file / "model.safetensors").read_bytes() == (whole / file / "model.safetensors").read_bytes()
    if left is not None:
        assert value.stat().st_mtime_ns == left  # taken over, not made again


def test_killed_after_the_boundary_it_resumes_in_the_second_stage(whole, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("lyceum.training.stages._groups.SampledGroups.take", killed)
        with pytest.raises(Killed):
            train(recipe(tmp_path))
    assert [path.name for path in checkpoint.found(tmp_path / "run/checkpoints")] == ["step-000002", "step-000001"]
    with monkeypatch.context() as patch:
        patch.setattr(
            "lyceum.training.stages.search_and_distil.SearchAndDistilRun.search", killed
        )  # nothing of it is repeated
        run = train(recipe(tmp_path), resume=True)
    assert lines_of(run) == lines_of(whole)
    assert (run / "model/model.safetensors").read_bytes() == (whole / "model/model.safetensors").read_bytes()


def test_the_first_step_of_a_later_stage_can_be_replayed(tmp_path):
    run = train(recipe(tmp_path, stages=(CRITIC, ACTOR | {"steps": 2})))
    found = replay(run, 3)
    assert found.own.gradients.loss == found.replay.recorded_loss
    assert found.to_json()["weights"].endswith("step-000002")


FIRST = {"kind": "online", "name": "first", "steps": 1}


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([CRITIC, ACTOR | {"value": {"kind": "model", "from_stage": "critik"}}], "'critik' (did you mean 'critic'?), "),
        ([CRITIC, ACTOR | {"value": {"kind": "model", "from_stage": "actor"}}], "which is no stage before this one; "),
        ([ACTOR, CRITIC], "stages.0.value.from_stage: got 'critic', which is no stage before this one; allowed: null"),
        (
            [FIRST, CRITIC, ACTOR | {"value": {"kind": "model", "from_stage": "first"}}],
            "stages.2.value.from_stage: got 'first', a stage that trains no value model; allowed: critic",
        ),
        (
            [CRITIC, ACTOR | {"value": {"kind": "model", "from_stage": "critic", "path": "x"}}],
            "from_stage: got 'critic' with path 'x'; allowed: one of them",
        ),
        ([CRITIC, ACTOR | {"name": "critic"}], "stages: got the name 'critic' twice; allowed: each name once"),
        ([CRITIC | {"name": "../x"}, ACTOR], "stages.0.name: got '../x'; allowed: letters, digits"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_is_loaded_or_written(tmp_path, capsys, stages, said):
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(RUN | {"output": str(tmp_path / "runs"), "stages": stages}))
    assert main(["train", str(file)]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_search_at_test_time_has_no_stages_to_take_from(capsys):
    assert main(["search", "base", "tasks=chain", "--value", "model", "value.from_stage=critic"]) == 2
    assert "value.from_stage: got 'critic', which is no stage before this one" in capsys.readouterr().err


def test_stages_without_a_name_are_named_by_their_kind():
    stages = [{"kind": "online"}, {"kind": "sft"}, {"kind": "online", "name": "online-2"}, {"kind": "online"}]
    named = parse(RUN | {"tasks": "chain-demonstrations", "stages": stages})
    assert [stage.name for stage in named.stages] == ["online", "sft", "online-2", "online-3"]
    assert parse(named.resolved()) == named


def test_keys_by_a_stages_name():
    rest = load_recipe("rest-rl", ["stages.search-and-distil.rounds=1", "stages.online.steps=7"])
    assert (rest.stages[0].steps, rest.stages[1].model_dump()["rounds"]) == (7, 1)
    with pytest.raises(RecipeError, match=r"stages.onlin: got 'onlin' \(did you mean 'online'\?\); allowed: a stage"):
        load_recipe("rest-rl", ["stages.onlin.steps=7"])


def test_a_round_that_changes_no_weights_leaves_nothing_in_the_engine_that_a_resumed_run_lacks(tmp_path):
    segments = {"kind": "segments", "samples": 3, "segment_tokens": 2, "sampling": {"max_completion_tokens": 5}}
    stage = CRITIC | {"tasks_per_round": 3, "rollout": segments}
    same = {"stages": [stage], "tasks": "chain-demonstrations"}
    whole = train(recipe(tmp_path, "whole", **same))
    with pytest.raises(Interrupted):
        train(recipe(tmp_path, "stopped", **same), interrupted=iter([True]).__next__)
    # Tokens computed among them: prefixes of the first round that were still cached would not be.
    assert lines_of(train(recipe(tmp_path, "stopped", **same), resume=True)) == lines_of(whole)
