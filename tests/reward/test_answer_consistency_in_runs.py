"""Recipe acre, briefly: some steps of fine-tuning teach the format, not yet which letter is correct."""

import json

import pyarrow.parquet as pq
import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train

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


def test_the_model_is_asked_while_a_guide_waits_for_grades(tmp_path):
    guide = {
        "kind": "search-where-hard",
        "tests": 2,
        "direct": {"kind": "flat", "samples": 4, "sampling": {"max_completion_tokens": 40}},
    }
    path = train(acre(tmp_path, "guided", "stages.2.steps=1", f"stages.2.guidance=[{json.dumps(guide)}]"))
    assert metrics(path)[TAUGHT]["reward/part/answer-consistency/asked"] > 0
