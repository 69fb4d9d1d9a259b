"""Recipes that need nothing but settings of what exists, as shipped but smaller: their mechanisms act."""

import asyncio
import json

import pytest
from fake_task import NO_MODEL

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import combine
from lyceum.tasks.reasoning_gym import ReasoningGym
from lyceum.training.train import train

SMALL = ["evaluate.n=0", "track=[]", "steps=2"]
ONLINE = ["tasks_per_step=6"]
# The whole first round fits into one step, so that the second one is drawn without its easy tasks.
ROUND = [*ONLINE, "curriculum.pool=6", "curriculum.least=2"]


def leaf(text):
    return Node(Node(None, [1], Origin.PROMPT), [2], Origin.POLICY, finish="stop", text=text)


def lines_of(recipe, path, *keys):
    folder = train(load_recipe(recipe, [*SMALL, *keys, f"output={path}"]))
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("recipe", "keys", "acted"),
    [
        ("lite-ppo", ONLINE, {"groups/with_gradient"}),
        ("nsr", ONLINE, {"rows_without_gradient"}),  # the correct ones
        ("self", ROUND, {"curriculum/easy/found", "kl/reference"}),
        ("rlsp", ONLINE, {"reward/part/occurrences"}),
        ("sari", ONLINE, {"reward/part/format"}),
        ("ovm", ["rounds=1", "tasks_per_round=6"], {"value/updates"}),
        ("propa", ["tasks_per_step=2", "tasks_per_round=4"], {"traces/distilled", "value/updates"}),
        ("to-backtrack", ["tasks_per_step=4", "tasks_per_round=12"], {"traces/distilled"}),
    ],
)
def test_the_mechanism_acts(recipe, keys, acted, tmp_path):
    lines = lines_of(recipe, tmp_path, *keys)
    assert acted == {name for name in acted if any(line.get(name, 0) > 0 for line in lines)}


def test_wrong_samples_weigh_ten_times_as_much_as_correct_ones():
    # The grader pays 1 or 0: 1.1 - 1 = 0.1 and 0 - 1 = -1 (the authors' script: positive_advantage_weight=0.1).
    (stage,) = load_recipe("w-reinforce").stages
    (task,), credit = stage.reward, stage.credit
    assert (credit.kind, credit.baseline) == ("reinforce", "constant")
    assert task.weight * 1 - credit.constant == pytest.approx(0.1)
    assert task.weight * 0 - credit.constant == -1


def test_more_samples_follow_once_accuracy_no_longer_rises(tmp_path):
    # A rise of 90 points never happens: the first stage ends after two windows of one step, not after its 4 steps.
    until = "stages.0.until={least_rise: 0.9, window: 1}"
    lines = lines_of("brorl", tmp_path, "tasks_per_step=1", "stages.0.steps=4", "stages.1.steps=1", until)
    assert len(lines) == 3
    few, many = (lines[at]["tokens_sampled"] - lines[at - 1]["tokens_sampled"] for at in (1, 2))
    assert many > 4 * few  # 128 samples after 8


def test_only_searches_with_dead_ends_are_imitated():
    traces = load_recipe("to-backtrack").stages[0].traces
    assert (traces.kind, traces.direct, traces.searched) == ("reflection", 0, 3)


@pytest.mark.parametrize("recipe", ["cls-rl", "g1", "guru", "multi-domain", "tig"])
def test_every_dataset_is_drawn_and_its_right_answer_is_paid(recipe):
    # Run as shipped, these need SmolLM2 (docs/smollm2.md): here their tasks and rewards alone.
    recipe = load_recipe(recipe)
    parts = [recipe.tasks] if isinstance(recipe.tasks, ReasoningGym) else [part.tasks for part in recipe.tasks.parts]
    source = recipe.tasks.build("train", 0)
    grader = combine(recipe.reward, source)
    tasks = [source[at] for at in range(4 * len(parts))]
    assert {task.provenance for task in tasks} == {part.dataset for part in parts}
    for task in tasks:
        right = f"It is = {task.answer}" if task.provenance == "chain_sum" else task.answer
        good, bad = asyncio.run(grader(task, [leaf(right), leaf("no such answer")], NO_MODEL))
        assert good.correct
        assert not bad.correct
        assert good.outcome > bad.outcome


def test_reasoning_around_a_label_earns_nothing():
    recipe = load_recipe("cls-rl")
    source = recipe.tasks.build("train", 0)
    task, grader = source[0], combine(recipe.reward, source)
    texts = [task.answer, f"{task.answer}.", f"The first says nothing of the second: {task.answer}"]
    grades = asyncio.run(grader(task, [leaf(text) for text in texts], NO_MODEL))
    assert [grade.outcome for grade in grades] == [1, 0, 0]
