"""User functions get the columns of the dataset, and nothing of what components of the loop tell each other."""

import json
from dataclasses import fields
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from leaves import leaf

from lyceum.core.types import Hint, Task
from lyceum.papers.train_long_think_short.reward_token_budget import TaskBudget
from lyceum.recipe.schema import load_recipe
from lyceum.reward import function, trl, verl
from lyceum.reward.base import allow_code
from lyceum.tasks.base import HintsLeak
from lyceum.training.train import train

pytestmark = pytest.mark.usefixtures("small_scratch")

FILE = str(Path(__file__).with_name("user_rewards.py"))
ROW = Task("t/1", ({"role": "user", "content": "1+1="},), "2", {"level": 1}, "tests")
MESSAGES = {
    "samples": 4,
    "hint": Hint("planning", ":1"),
    "notes": {TaskBudget.kind: TaskBudget(80), HintsLeak.kind: HintsLeak(False)},
}


def test_no_kind_of_user_function_gets_a_message():
    told = Task(ROW.id, ROW.messages, ROW.answer, ROW.columns, ROW.provenance, **MESSAGES)
    # Whoever adds a field to Task says here whether a user's function is to see it.
    assert {field.name for field in fields(Task)} == {"id", "messages", "answer", "columns", "provenance", *MESSAGES}
    assert told.public() == ROW
    end = leaf("2")
    assert function.keywords(told, end) == function.keywords(ROW, end)
    assert trl.arguments(told, [end], chat=False) == trl.arguments(ROW, [end], chat=False)
    assert verl.arguments(told, end) == verl.arguments(ROW, end)


@pytest.mark.parametrize("kind", ["function", "trl"])
def test_under_a_curriculum_and_a_guide_that_send_messages_a_function_gets_the_columns_alone(kind, tmp_path):
    budget = {"kind": "shrinking-budget", "template": ":{token_budget}", "place": "hint"}
    own = {"kind": kind, "function": f"{FILE}:{kind}_counts_strangers", "weight": 0}
    settings = [
        *["model=scratch", "steps=1", "tasks_per_step=2", "tasks.levels=[2]", "evaluate.n=0", "guidance.0.exempt=0"],
        *["rollout.samples=2", "rollout.sampling.max_completion_tokens=6", f"output={tmp_path}"],
        *[("curriculum", budget), ("reward", ["task", "token-budget", own])],
    ]
    with allow_code():
        folder = train(load_recipe("scaf-grpo", settings))
    rows = parquet.read_table(folder / "rollouts").to_pylist()
    parts = [json.loads(row["parts"]) for row in rows]
    assert parts
    assert all(part[f"{kind}_counts_strangers"] == 0 for part in parts), (
        "names beside a chain's columns and the documented ones"
    )
    assert all("token-budget" in part for part in parts), "the budget reached the reward that it is for"
    assert all(json.loads(row["metadata"])["scaffold"]["samples"] for row in rows), "and hints were given"
