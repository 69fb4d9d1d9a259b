"""The stage that trains reward models: what it learns from, what it is measured on, and what later stages take over."""

import json

import pytest
from test_handover import CRITIC, RUN, SHORT, recipe

from lyceum.recipe.schema import load_recipe, parse
from lyceum.training.stages.reward_model import RewardModelRun
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, NothingLearnt, RecipeError

MODEL = {
    "kind": "reward-model",
    "name": "judge",
    "steps": 2,
    "tasks_per_step": 4,
    "held_out": 0.25,
    "rollout": {"kind": "flat", "samples": 4, "sampling": SHORT},
    "value": {"kind": "implicit", "lr": 1e-3, "batch": 8},
}
ACTOR = {
    "kind": "online",
    "name": "actor",
    "steps": 2,
    "tasks_per_step": 2,
    "rollout": {"kind": "flat", "samples": 3, "sampling": SHORT},
    "reward": ["test-share-of-digits", {"kind": "model", "cut": "tokens"}],
    "value": {"kind": "implicit", "from_stage": "judge"},
    "credit": {"kind": "prime", "process_coefficient": 100},
    "learner": {"lr": 1e-2},
}


def lines_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k and k != "time"} for line in lines]


def test_what_is_held_out_is_measured_and_never_fitted(tmp_path, monkeypatch):
    fitted, measured = [], []
    examples, figures = RewardModelRun.examples, RewardModelRun.measured

    def noted(self, trees):
        fitted.append({tree.task.id for tree in trees})
        return examples(self, trees)

    def looked_at(self, trees):
        measured.append({tree.task.id for tree in trees})
        return figures(self, trees)

    monkeypatch.setattr(RewardModelRun, "examples", noted)
    monkeypatch.setattr(RewardModelRun, "measured", looked_at)
    run = train(recipe(tmp_path, stages=[MODEL]))
    assert [len(ids) for ids in measured] == [1, 1]
    # Each round: the fitted tasks, then, for their loss, the held-out ones.
    assert [len(ids) for ids in fitted] == [3, 1, 3, 1]
    assert not measured[0] & fitted[0]
    assert all(line["held_out/loss"] > 0 and line["value/updates"] for line in lines_of(run))
    assert (run / "value/reference/config.json").is_file()


def test_stopped_in_either_stage_it_goes_on_as_if_it_had_not_been(tmp_path):
    whole = train(recipe(tmp_path, "whole", stages=[MODEL, ACTOR]))
    assert lines_of(whole)[-1]["credit/tokens_with_process_reward"] > 0
    for steps in (1, 3):
        with pytest.raises(Interrupted):
            train(
                recipe(tmp_path, f"cut-{steps}", stages=[MODEL, ACTOR]),
                interrupted=iter([False] * (steps - 1) + [True]).__next__,
            )
        run = train(recipe(tmp_path, f"cut-{steps}", stages=[MODEL, ACTOR]), resume=True)
        assert lines_of(run) == lines_of(whole)
        for file in ("model", "stages/judge/value", "stages/judge/value/reference"):
            assert (run / file / "model.safetensors").read_bytes() == (whole / file / "model.safetensors").read_bytes()


def test_step_checks_measure_no_model_that_was_fitted_to_them(tmp_path):
    keys = {"tasks": {"kind": "chain", "levels": [1, 2]}, "reward": "task", "model": "base"}
    found = {}
    for labels in ("outcome", "steps"):
        stage = MODEL | {"labels": labels, "steps": 1, "held_out": 0.5, "value": {"kind": "model"}}
        stage["rollout"] = {"kind": "flat", "samples": 4, "sampling": {"max_completion_tokens": 24, "temperature": 2}}
        found[labels] = lines_of(train(recipe(tmp_path, labels, stages=[stage], **keys)))[0]
    assert "held_out/step_f1" in found["outcome"]
    assert not [name for name in found["steps"] if name.startswith("held_out/step")]


def test_labels_that_nobody_gives_are_refused_at_the_first_round(tmp_path):
    with pytest.raises(RecipeError, match="labels: got 'steps', but the grader judged none in a round; allowed: tasks"):
        train(recipe(tmp_path, stages=[MODEL | {"labels": "steps"}]))


PAIRS = MODEL | {"labels": "pairs", "value": {"kind": "model", "loss": "pairwise"}}


def test_a_part_that_nothing_gives_ends_the_run_at_the_first_round(tmp_path):
    with pytest.raises(NothingLearnt, match=r"judge.factors: got 'nowhere', which no grade of a round has; needed: a"):
        train(recipe(tmp_path, stages=[PAIRS | {"factors": [{"by": "tokens"}, {"by": "nowhere"}]}]))


def test_a_reward_model_that_was_fitted_to_nothing_pays_no_policy(tmp_path):
    # No two completions of at most 24 tokens are 1000 apart, so that no round has a pair.
    stage = PAIRS | {"factors": [{"by": "tokens", "margin": 1000}]}
    with pytest.raises(NothingLearnt, match=r"judge: the reward model was fitted to nothing.*no two trajectories"):
        train(recipe(tmp_path, stages=[stage]))
    assert not (tmp_path / "run" / "stages" / "judge" / "value").exists()


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([MODEL | {"labels": "pairs"}], "value.loss: got 'bce' with labels 'pairs'; allowed: pairwise with them"),
        ([MODEL | {"labels": "progress"}], "value.loss: got 'bce' with labels 'progress'; allowed: sum with them"),
        ([MODEL | {"value": {"kind": "model", "loss": "sum"}}], "'sum' with labels 'outcome'; allowed: mse or bce"),
        (
            [CRITIC | {"value": {"kind": "model", "loss": "pairwise"}}],
            "'pairwise', but targets are values of paths",
        ),
        (
            [MODEL | {"value": "likelihood"}],
            "value.kind: got 'likelihood', which learns nothing; allowed: goal-conditioned, implicit, model",
        ),
        ([MODEL | {"value": {"kind": "implicit", "online": True}}], "value.online: got true in a stage without credit"),
        (
            [CRITIC, ACTOR | {"value": {"kind": "implicit", "from_stage": "critic"}}],
            "whose value model is of kind 'mod",
        ),
        (
            [MODEL, ACTOR | {"value": {"kind": "model", "from_stage": "judge"}}],
            "whose value model is of kind 'implicit'",
        ),
        (
            [MODEL | {"rollout": {"kind": "turns", "environment": "calculator"}}],
            "whose turns an environment answers, but value.kind 'implicit'",
        ),
        (
            [ACTOR | {"value": {"kind": "implicit", "online": True, "loss": "pairwise"}}],
            "value.loss: got 'pairwise' with value.online, which learns from single verdicts; allowed: bce",
        ),
        (
            [ACTOR | {"value": None, "guidance": [{"kind": "consistency-filter", "samples": 4, "keep": 4}]}],
            "keep: got 4 with samples 4; allowed: fewer than samples",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_a_model_is_loaded(stages, said):
    with pytest.raises(RecipeError) as error:
        parse(RUN | {"stages": stages})
    assert said in str(error.value)


def test_a_budget_in_tokens_makes_rounds():
    (stage, _) = load_recipe("prof").stages
    assert stage.with_budget(10_000, keep_steps=False).max_tokens == 10_000
