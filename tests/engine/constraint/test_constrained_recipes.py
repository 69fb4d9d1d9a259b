"""The recipe as shipped draws under its schema; tree searches and evaluations keep to one too."""

import json

import pyarrow.parquet as pq
import pytest

from lyceum.core.types import Sampling
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

FEW = ["steps=1", "tasks_per_step=2", "evaluate.n=0", "rollouts_every=1"]


def ran(name, overrides, folder):
    path = train(load_recipe(name, [*FEW, *overrides, f"output={folder}"]))
    metrics = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    return metrics, pq.read_table(path / "rollouts").to_pylist()


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    return ran("json-answer", [], tmp_path_factory.mktemp("on"))


def test_every_completion_of_the_recipe_is_json_of_its_schema(shipped):
    metrics, rows = shipped
    assert metrics["truncated"] == 0
    assert len(rows) == 16
    for row in rows:
        (solution,) = json.loads(row["completion"])
        assert int(solution.partition("#")[2]) <= 99


def test_the_recipe_without_its_grammar_writes_other_tokens(shipped, tmp_path):
    constraint = load_recipe("json-answer", []).stages[-1].sampling.constraint
    assert constraint is not None
    assert constraint.kind == "json-schema"
    metrics, rows = ran("json-answer", ["rollout.sampling.constraint=null"], tmp_path)
    assert not any(name.startswith("constraint/") for name in metrics)
    assert all(one["completion"] != other["completion"] for one, other in zip(rows, shipped[1], strict=True))


def test_the_learner_repeats_the_grammar_and_says_what_it_excluded(tmp_path):
    metrics, _ = ran("json-answer", ["tasks_per_step=8"], tmp_path)  # so that some groups have correct answers
    assert metrics["ratio"] == 1
    assert 0.05 < metrics["constraint/acted"] < 0.9, "at the brackets and quotes, and not at every digit"
    assert metrics["constraint/nats"] > 0.1


SCHEMA = "{kind: json-schema, json_schema: {type: array, items: {enum: [1, 22]}, minItems: 1, maxItems: 3}}"


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("treepo", ["rollout.segment_tokens=2", "collect.keep=all"]),
        ("treerl", []),
        ("salt", []),
        ("latr", ["rollout.look_aheads=[2, 3]"]),
        ("cure", ["collect.keep=all"]),
    ],
)
def test_trees_that_branch_inside_the_json_complete_it(name, overrides, tmp_path):
    overrides = [
        *overrides, "model=scratch", "reward=task", f"rollout.sampling.constraint={SCHEMA}",
        "rollout.sampling.max_completion_tokens=24",
    ]  # fmt: skip
    if name == "cure":
        overrides = [each.replace("rollout.", "stages.0.rollout.") for each in overrides]
    _, rows = ran(name, overrides, tmp_path)
    assert rows
    for row in rows:
        if row["step"] == 1:
            assert set(json.loads(row["completion"])) <= {1, 22}


def test_an_engine_that_cannot_repeat_it_is_refused_by_a_line():
    with pytest.raises(RecipeError, match=r"gives no constraint, and rollout.kind 'flat' reads it"):
        load_recipe("json-answer", ["engine=vllm"])
    with pytest.raises(RecipeError, match=r"gives no entropy, and rollout.kind 'critical-tokens' reads it"):
        load_recipe("cure", ["stages.0.engine=vllm"])


def test_evaluations_keep_to_the_grammar_of_the_last_stage_unless_they_say_otherwise():
    recipe = load_recipe("json-answer", [])
    assert recipe.evaluation_sampling.constraint == recipe.stages[-1].sampling.constraint
    free = load_recipe("json-answer", ["evaluate.sampling={max_completion_tokens: 8}"])
    assert free.evaluation_sampling == Sampling(max_completion_tokens=8)
