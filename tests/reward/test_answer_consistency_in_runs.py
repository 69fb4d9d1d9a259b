"""Recipe acre, briefly: some steps of fine-tuning teach the format, not yet which letter is correct."""

import json

import pyarrow.parquet as pq
import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted

TAUGHT = 20
BRIEF = [
    "stages.0.steps=1",
    f"stages.1.steps={TAUGHT - 1}",
    "stages.1.tasks_per_step=16",
    "stages.1.learner.lr=1e-3",
    "stages.1.learner.warmup_steps=1",
    "stages.2.steps=2",
    "stages.2.tasks_per_step=4",
    "stages.2.rollout.samples=4",
    "evaluate.n=0",
    "rollouts_every=1",
]


def acre(folder, name, *overrides):
    return load_recipe("acre", [*BRIEF, *overrides, f"output={folder}", f"name={name}"])


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def rollouts(path, step=TAUGHT + 1):
    return pq.read_table(path / "rollouts" / f"step-{step:06d}.parquet").to_pylist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(acre(tmp_path_factory.mktemp("acre"), "whole"))


def test_the_recipe_asks_the_model_again_and_some_answers_are_consistent(whole):
    first = metrics(whole)[TAUGHT]
    part = {name.rpartition("/")[2]: value for name, value in first.items() if name.startswith("reward/part/")}
    assert part["asked"] > 0.5
    assert 0 < part["consistent"] < 1
    assert 0 < part["second_right"] < 1
    rewards = {row["outcome"] for row in rollouts(whole)}
    assert len(rewards & {0.0, 0.25, 0.5, 1.0}) >= 3
    # Second answers are sampled beside the tree, and count.
    assert first["tokens_sampled"] > sum(row["tokens"] for row in rollouts(whole))


def test_where_the_second_answer_does_not_count_the_same_tokens_have_other_advantages(whole, tmp_path):
    off = {"kind": "answer-consistency", "extract": {"after": "#"}, "first_right": 1, "second_right": 0}
    plain = train(load_recipe("acre", [*BRIEF, ("reward", off), f"output={tmp_path}", "name=plain"]))
    a, b = rollouts(whole), rollouts(plain)
    assert [row["completion"] for row in a] == [row["completion"] for row in b]
    assert [row["advantage"] for row in a] != [row["advantage"] for row in b]


def test_the_model_is_asked_while_a_guide_waits_for_grades(tmp_path):
    guide = {
        "kind": "search-where-hard",
        "tests": 2,
        "direct": {"kind": "flat", "samples": 4, "sampling": {"max_completion_tokens": 40}},
    }
    path = train(acre(tmp_path, "guided", "stages.2.steps=1", f"stages.2.guidance=[{json.dumps(guide)}]"))
    assert metrics(path)[TAUGHT]["reward/part/answer-consistency/asked"] > 0


def test_a_resumed_run_has_the_same_bits(whole, tmp_path):
    done = []
    with pytest.raises(Interrupted):
        train(acre(tmp_path, "cut"), interrupted=lambda: done.append(1) or len(done) > TAUGHT)
    assert len(metrics(tmp_path / "cut")) == TAUGHT + 1
    train(acre(tmp_path, "cut"), resume=True)

    def untimed(path):
        return [{k: v for k, v in line.items() if "second" not in k and k != "time"} for line in metrics(path)]

    assert untimed(tmp_path / "cut") == untimed(whole)
    weights = [(path / "model" / "model.safetensors").read_bytes() for path in (whole, tmp_path / "cut")]
    assert weights[0] == weights[1]
