"""The recipe direct-advantage as shipped, on few tasks: its critic tells states apart, and the policy learns by it."""

import json

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train

FEW = [
    *("evaluate.n=0", "track=[]", "tasks.levels=[3]", "stages.critic.steps=1", "stages.critic.rounds=1"),
    *("stages.critic.tasks_per_round=4", "stages.critic.value.epochs=1", "stages.actor.steps=1"),
    *("stages.actor.tasks_per_step=2", "stages.actor.learner.warmup_steps=0", "keep_stages=false"),
]


def run(folder, name, *keys):
    path = train(load_recipe("direct-advantage", [*FEW, f"output={folder}", f"name={name}", *keys]))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return lines, (path / "model/model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs"), "shipped")


def test_the_critic_tells_states_apart_and_its_differences_are_what_steps_are_trained_by(shipped):
    (critic, actor), _ = shipped
    assert (critic["stage"], actor["stage"]) == ("critic", "actor")
    assert critic["value/updates"] > 0
    assert critic["tokens_trained"] == 0  # the policy stays as it is
    assert actor["credit/values/spread"] > 0
    assert 0 < actor["credit/steps_with_gain"] <= actor["credit/steps"] == actor["direct/steps"]
    assert actor["direct/steps_with_advantage"] > 0
    assert actor["direct/log_ratio"] > 0  # several passes: the policy has moved away from the reference


def test_an_untrained_critic_says_the_same_of_every_state_and_trains_to_other_weights(shipped, tmp_path):
    (_, actor), weights = run(tmp_path, "untrained", "stages.actor.value={kind: model}")
    assert actor["credit/values/spread"] == 0  # 0.5 everywhere: only last steps, which are verified, gain or lose
    assert actor["credit/steps_with_gain"] < shipped[0][1]["credit/steps_with_gain"]
    assert weights != shipped[1]
