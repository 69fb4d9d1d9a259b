"""Recipes that need nothing but settings of what exists: what ``proofs.py`` does not show of them."""

import asyncio
import json

import pytest
from fake_task import NO_MODEL

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import combine
from lyceum.run.trees import read_trees
from lyceum.tasks.reasoning_gym import ReasoningGym
from lyceum.training.train import train


def leaf(text):
    return Node(Node(None, [1], Origin.PROMPT), [2], Origin.POLICY, finish="stop", text=text)


def test_wrong_samples_weigh_ten_times_as_much_as_correct_ones():
    # The grader pays 1 or 0: 1.1 - 1 = 0.1 and 0 - 1 = -1 (the authors' script: positive_advantage_weight=0.1).
    (stage,) = load_recipe("w-reinforce").stages
    (task,), credit = stage.reward, stage.credit
    assert (credit.kind, credit.baseline) == ("reinforce", "constant")
    assert task.weight * 1 - credit.constant == pytest.approx(0.1)
    assert task.weight * 0 - credit.constant == -1


def test_more_samples_follow_once_accuracy_no_longer_rises(tmp_path):
    # A rise of 90 points never happens: the first stage ends after two windows of one step, not after its 4 steps.
    brief = ["tasks_per_step=1", "stages.0.steps=4", "stages.1.steps=1", "evaluate.n=0", "track=[]"]
    recipe = load_recipe("brorl", [*brief, "stages.0.until={least_rise: 0.9, window: 1}", f"output={tmp_path}"])
    lines = [json.loads(line) for line in (train(recipe) / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    few, many = (lines[at]["tokens_sampled"] - lines[at - 1]["tokens_sampled"] for at in (1, 2))
    assert many > 4 * few  # 128 samples after 8


def test_only_searches_with_dead_ends_are_imitated():
    traces = load_recipe("to-backtrack").stages[0].traces
    assert (traces.kind, traces.direct, traces.searched) == ("reflection", 0, 3)


def test_treerl_forks_where_the_sampled_token_was_least_likely(tmp_path):
    # One step of two tasks: the token before which each first sample is resampled has the highest -log p of all but the
    # first. By entropy it would be another one in some of these.
    brief = ["steps=1", "tasks_per_step=2", "trees_every=1", "evaluate.n=0", "track=[]", f"output={tmp_path}"]
    path = train(load_recipe("treerl", brief))
    (file,) = path.rglob("trees/*.parquet")
    places = []
    for tree in read_trees(file).trees:
        note = tree.metadata["critical-tokens"]
        for leaf, place in zip(tree.trajectories[: note["first"]], note["places"], strict=True):
            likelihood = [p for node in leaf.path()[1:] for p in node.model_logprob]
            assert place == min(range(1, len(likelihood)), key=likelihood.__getitem__)
            places.append(place)
    assert len(places) == 4


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
