"""A stage's slow average as the reference of a KL penalty."""

import json

import pytest
import tiny_rewards  # noqa: F401 - the reward of these runs

from lyceum.recipe.schema import parse
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")


def recipe(folder, name, *, where="objective", average, **kl):
    penalty = {"coefficient": 0.5, **kl}
    stage = {
        "kind": "online",
        "steps": 3,
        "tasks_per_step": 2,
        "rollout": {"kind": "flat", "samples": 3, "sampling": {"max_completion_tokens": 5}},
        "objective": {"kind": "ppo-clip", "kl": penalty if where == "objective" else {}},
        "credit": {"kind": "group", "kl_in_reward": penalty if where == "credit" else {}},
        "learner": {"lr": 1e-2},
        "average": average,
    }
    given = {"model": "scratch", "reward": "test-letters", "evaluate": {"n": 0}, "track": [], "stages": [stage]}
    return parse(given | {"output": str(folder), "name": name})


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_penalty_against_the_average_is_less_than_one_against_the_stages_start(tmp_path):
    start = metrics(train(recipe(tmp_path, "start", average=None)))
    near = metrics(train(recipe(tmp_path, "near", average={"decay": 0}, against="average")))
    far = metrics(train(recipe(tmp_path, "far", average={"decay": 0.5}, against="average")))
    # An average of decay 0 is the policy with which each step begins.
    assert [line["kl/average"] for line in near] == pytest.approx([0, 0, 0], abs=1e-9)
    # After the first step the average of decay 0.5 is halfway from the start.
    assert far[0]["kl/average"] == pytest.approx(0, abs=1e-9)
    assert 0 < far[1]["kl/average"] < start[1]["kl/reference"]
    assert "kl/reference" not in far[1]
    assert "average/distance" not in start[0], "no copy where nothing reads it"


def test_a_penalty_in_the_reward_against_the_average_changes_what_is_learnt(tmp_path):
    losses = [
        [line["loss"] for line in metrics(train(recipe(tmp_path, f"decay-{decay}", where="credit", **given)))]
        for decay, given in (
            (0, {"average": {"decay": 0}, "against": "average"}),
            (0.9, {"average": {"decay": 0.9}, "against": "average"}),
        )
    ]
    assert losses[0][0] == losses[1][0]
    assert losses[0][1:] != losses[1][1:]


@pytest.mark.parametrize("where", ["objective", "credit"])
def test_an_average_that_is_read_has_settings_and_one_that_is_not_read_has_none(where, tmp_path):
    with pytest.raises(RecipeError, match=rf"average: got none, but {where}.kind '.*' reads the slow average"):
        recipe(tmp_path, "none", where=where, average=None, against="average")
    with pytest.raises(RecipeError, match=r"average: got decay 0\.9, but nothing here reads it"):
        recipe(tmp_path, "unread", where=where, average={"decay": 0.9}, against="average", coefficient=0)
