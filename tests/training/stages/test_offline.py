"""The offline stage: what it trains on, from where, in which order, and what it refuses."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from lyceum.core.settings import RewardSettings
from lyceum.core.types import Grade, Grader, TaskSource
from lyceum.recipe.schema import load_recipe, parse
from lyceum.reward.base import each
from lyceum.run.trees import read_trees
from lyceum.training import train as training
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError, RunError

pytestmark = pytest.mark.usefixtures("small_scratch")


class Digits(RewardSettings):
    """The share of digits among what was written: an untrained model's samples differ in it."""

    kind: Literal["test-offline-digits"] = "test-offline-digits"

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: Grade(sum(map(str.isdigit, leaf.completion)) / (1 + len(leaf.completion))))


ROLLOUT = {"kind": "flat", "samples": 3, "sampling": {"max_completion_tokens": 4}}
OFFLINE = {
    "kind": "offline",
    "steps": 4,
    "tasks_per_step": 2,
    "data": {"kind": "sampled", "tasks": 3, "part": 2},
    "rollout": ROLLOUT,
    "learner": {"lr": 1e-2},
}
PPO = {"objective": {"kind": "ppo-clip"}}
AGAIN = OFFLINE | PPO | {"name": "again", "steps": 1, "data": {"kind": "recorded", "from_stage": "offline"}}
ONLINE = {"kind": "online", "steps": 1, "tasks_per_step": 2, "rollout": ROLLOUT, "learner": {"lr": 1e-2}}
RUN = {
    "model": "scratch",
    "tasks": {"kind": "chain", "levels": [1, 2]},
    "reward": "test-offline-digits",
    "evaluate": {"n": 0},
    "checkpoint_every": 1,
    "track": [],
}


def recipe(folder, *stages, name="run", **keys):
    return parse(RUN | {"name": name, "output": str(folder), "stages": list(stages)} | keys)


def lines_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k and k != "time"} for line in lines]


def data_of(folder):
    return [tree for file in sorted((folder / "data").glob("*")) for tree in read_trees(file).trees]


def tokens_of(trees):
    return [(tree.task.id, [leaf.path_tokens() for leaf in tree.trajectories]) for tree in trees]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Three groups in steps of two: passes of two steps, of two groups and of one."""
    return train(recipe(tmp_path_factory.mktemp("whole"), OFFLINE, AGAIN))


def test_it_samples_once_with_the_policy_that_enters_and_trains_in_whole_passes(whole):
    lines = lines_of(whole)
    trees = data_of(whole / "stages" / "offline")
    assert [len(tree.trajectories) for tree in trees] == [3, 3, 3]
    assert {version for tree in trees for node in tree.nodes() for version in node.version} == {0}
    assert [line["groups"] for line in lines] == [2, 1, 2, 1, 2]
    assert (lines[0]["data/groups"], lines[0]["data/kept"], lines[0]["data/trajectories"]) == (3, 3, 9)
    sampled = sum(tree.sampled_tokens for tree in trees)
    assert [line["tokens_sampled"] for line in lines] == [sampled] * 5  # recorded trees cost nothing
    assert [line["stage"] for line in lines] == ["offline"] * 4 + ["again"]


def test_a_later_stage_trains_on_what_an_earlier_one_sampled(whole):
    assert tokens_of(data_of(whole)) == tokens_of(data_of(whole / "stages" / "offline"))


def test_each_stages_model_opens_by_itself(whole):
    models = [
        AutoModelForCausalLM.from_pretrained(folder) for folder in (whole / "stages/offline/model", whole / "model")
    ]
    weights = [torch.cat([p.flatten() for p in model.parameters()]) for model in models]
    assert not torch.equal(*weights)


def test_ratios_are_to_the_recorded_behaviour_or_to_the_step(tmp_path):
    # The policy has been trained since it sampled: against its behaviour the ratio is not 1 at the first update.
    steps = {
        ratio: train(recipe(tmp_path, OFFLINE, AGAIN | {"ratio": ratio}, name=ratio)) for ratio in ("behaviour", "step")
    }
    ratio = {name: lines_of(run)[-1]["ratio"] for name, run in steps.items()}
    assert ratio["step"] == 1
    assert abs(ratio["behaviour"] - 1) > 1e-3


def test_epochs_end_it_before_its_steps(tmp_path):
    run = train(recipe(tmp_path, OFFLINE | {"steps": 50, "epochs": 2}))
    assert len(lines_of(run)) == 4


def test_a_budget_of_tokens_ends_the_sampling(tmp_path):
    run = train(
        recipe(tmp_path, OFFLINE | {"steps": 1, "max_tokens": 1, "data": {"kind": "sampled", "tasks": 9, "part": 2}})
    )
    assert lines_of(run)[0]["data/groups"] == 2


def test_another_run_s_trees_are_taken_the_newest_first(tmp_path, whole):
    data = {"kind": "recorded", "path": str(whole), "from_stage": "offline", "most": 1}
    run = train(recipe(tmp_path, AGAIN | {"data": data}))
    assert tokens_of(data_of(run)) == tokens_of(data_of(whole / "stages" / "offline"))[-1:]


def test_stopped_while_it_samples_it_goes_on_after_the_last_part(tmp_path, whole):
    asked = iter([True])
    with pytest.raises(Interrupted):
        train(recipe(tmp_path, OFFLINE, AGAIN), interrupted=lambda: next(asked, False))
    parts = [file.read_bytes() for file in (tmp_path / "run/stages/offline/data").glob("*")]
    assert len(parts) == 1
    run = train(recipe(tmp_path, OFFLINE, AGAIN), resume=True)
    assert lines_of(run) == lines_of(whole)
    same = [load_file(each / "model" / "model.safetensors") for each in (run, whole)]
    assert all(torch.equal(same[0][name], same[1][name]) for name in same[1])


PLATEAU = {"solved": 0.9, "least_rise": 0.5, "window": 1}
EVALUATED: dict[str, Any] = {"evaluate": {"n": 1, "samples": 1, "greedy": False, "every": 1}}


@pytest.fixture(scope="module")
def at_plateau(tmp_path_factory) -> Path:
    """Nothing is solved: the second evaluation ends the offline stage, of which there would be four steps."""
    return train(recipe(tmp_path_factory.mktemp("plateau"), OFFLINE | {"until": PLATEAU}, ONLINE, **EVALUATED))


def test_a_plateau_of_held_out_accuracy_ends_it_and_the_next_stage_begins(at_plateau):
    assert [line["stage"] for line in lines_of(at_plateau)] == ["offline", "offline", "online"]
    ended = json.loads((at_plateau / "summary.json").read_text())["ended"]
    why = "held-out accuracy (mean of 1) rose by 0.0000 (until.least_rise=0.5)"
    assert ended == {"offline": {"steps": 2, "why": why}, "online": {"steps": 1, "why": "its steps are done"}}
    assert why in (at_plateau / "report.html").read_text()


def test_a_run_that_is_stopped_before_an_early_end_and_killed_after_it_resumes_to_the_same(
    tmp_path, at_plateau, monkeypatch
):
    wanted = recipe(tmp_path, OFFLINE | {"until": PLATEAU}, ONLINE, **EVALUATED)
    lines, asked = tmp_path / "run" / "metrics.jsonl", iter([True])
    with pytest.raises(Interrupted):  # after the first of its two steps
        train(wanted, interrupted=lambda: lines.exists() and bool(lines.read_text()) and next(asked, False))
    with monkeypatch.context() as patch:
        # It has ended, which its last checkpoint knows, and the next stage has none.
        patch.setattr(training, "save_policy", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(wanted, resume=True)
    run = train(wanted, resume=True)
    assert lines_of(run) == lines_of(at_plateau)
    same = [load_file(each / "model" / "model.safetensors") for each in (run, at_plateau)]
    assert all(torch.equal(same[0][name], same[1][name]) for name in same[1])


def test_an_early_end_by_evaluations_that_there_are_not_is_refused():
    assert "until.accuracy: got 'held-out', but nothing is evaluated" in refused(OFFLINE | {"until": PLATEAU})
    assert "until.accuracy: got 'training'" in refused(OFFLINE | {"until": PLATEAU | {"accuracy": "training"}})
    # The second evaluation, on which a rise could be too small, would be after 4 of 4 steps.
    seldom = {"evaluate": EVALUATED["evaluate"] | {"every": 2}}
    assert "allowed: a window of at most 1" in refused(OFFLINE | {"until": PLATEAU | {"window": 2}}, **seldom)
    rise = OFFLINE | {"until": {"least_rise": 0.5, "window": 1}}
    assert "an evaluation every 2, so it never ends earlier; allowed: more steps" in refused(rise, **seldom)


def refused(*stages, **keys) -> str:
    with pytest.raises(RecipeError) as error:
        recipe("runs", *stages, **keys)
    return str(error.value)


def test_a_stage_that_asks_for_trees_that_none_before_it_leaves():
    assert "data.from_stage: got 'offline', which is no stage before this one" in refused(AGAIN)
    of_online = AGAIN | {"data": {"kind": "recorded", "from_stage": "online"}}
    assert "which leaves no trees (trees_every=0)" in refused(ONLINE, of_online)
    recipe("runs", ONLINE, of_online, trees_every=1)
    assert "got neither path nor from_stage" in refused(AGAIN | {"data": {"kind": "recorded"}})


def test_what_cannot_be_trained_offline():
    assert "objective.kind: got 'sft', which trains demonstrations" in refused(OFFLINE | {"objective": "sft"})
    partly = OFFLINE | {"rollout": ROLLOUT | {"tokens_per_step": 2}}
    assert "whose trajectories go on in the next step" in refused(partly)
    assert "rollout.samples: got 1" in refused(OFFLINE | {"rollout": ROLLOUT | {"samples": 1}})


def test_trees_that_are_missing_or_of_another_tokenizer_are_refused_and_nothing_is_written(
    tmp_path, whole, monkeypatch
):
    def refused_by(path, stage=None):
        data = {"kind": "recorded", "path": str(path), "from_stage": stage}
        with pytest.raises(RecipeError) as error:
            train(recipe(tmp_path / "runs", AGAIN | {"data": data}))
        assert not (tmp_path / "runs").exists()
        return str(error.value)

    assert "is not a run's folder" in refused_by(tmp_path / "bare")
    assert "data.from_stage: got 'other', which is no stage of" in refused_by(whole, "other")
    bare = train(recipe(tmp_path / "bare", ONLINE))
    assert "has no trees; allowed" in refused_by(bare)
    monkeypatch.setattr(
        "lyceum.run.stage_trees.written", lambda leaf: (leaf.path()[1].tokens[::-1], leaf.path()[1].text)
    )
    assert "got tokens of another tokenizer" in refused_by(whole)


def test_no_group_left_to_train_on_ends_it_with_a_line(tmp_path):
    keep = {"keep": "solved-between", "solved_low": 1.0}
    with pytest.raises(RunError, match=r"collect.keep: got 'solved-between', but none of the 3 groups"):
        train(recipe(tmp_path, OFFLINE | {"collect": keep}))


def test_a_bare_key_goes_to_the_stages_whose_component_has_it():
    found = load_recipe(
        "grpo", ["stages=[{kind: offline}, {kind: online}]", "rollout.samples=5", "data.tasks=7", "objective.beta=0.5"]
    )
    first, second = found.resolved()["stages"]
    assert "beta" not in second["objective"]
    assert first["objective"]["beta"] == 0.5
    assert (first["rollout"]["samples"], second["rollout"]["samples"], first["data"]["tasks"]) == (5, 5, 7)
