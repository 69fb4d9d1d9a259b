"""Correct answers compared by their likelihood below their own reasoning, and recipe grpo-care."""

import asyncio
import json
import math
from dataclasses import dataclass, field

import pyarrow.parquet as pq
import pytest
import torch
from leaves import leaf
from pydantic import ValidationError
from safetensors.torch import load_file

from lyceum.core.types import Task
from lyceum.papers.grpo_care.reward_consistency_bonus import ConsistencyBonus, consistent
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError

TASK = Task("t", ())


@dataclass
class Average:
    """Each answer's characters, which are its tokens, are as likely as its text says: "0.5" thrice 0.5."""

    asked: list = field(default_factory=list)

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    async def score_under(self, model, paths):
        assert model == "average"
        texts = [self.decode(path.tokens[path.start : path.stop]) for path in paths]
        self.asked += texts
        return [[math.log(float(text))] * len(text) for text in texts]


def written(text):
    node = leaf(text)
    node.tokens = list(map(ord, text))
    return node


def graded(texts, verdicts, **settings):
    average, part = Average(), ConsistencyBonus(**settings)
    grader = part.build(None)
    grades = asyncio.run(grader(TASK, [written(text) for text in texts], average, verdicts))
    grader.observe([])
    return grades, average.asked, grader.metrics()


def answers(*likelihoods):
    return [f"So it is.<answer>{likelihood}</answer>" for likelihood in likelihoods]


def test_correct_answers_at_or_above_the_mean_of_the_correct_ones_are_paid():
    # Correct: 0.9, 0.7, 0.3: mean 0.633.
    grades, asked, metrics = graded(answers(0.9, 0.7, 0.3, 0.1), [True, True, True, False])
    assert [grade.outcome for grade in grades] == [1, 1, 0, 0]
    assert asked == ["0.9", "0.7", "0.3"], "the answer alone, between its tags, of correct completions alone"
    # One group, parted: (0.9 + 0.7) / 2 - 0.3.
    assert metrics == pytest.approx({"groups/compared": 1, "groups/parted": 1, "likelihood/lead": 0.5})
    # Correct: 0.9, 0.5, 0.4: mean 0.6; with the incorrect 0.1 it were 0.475, and 0.5 were paid.
    grades, _, _ = graded(answers(0.9, 0.5, 0.4, 0.1), [True, True, True, False])
    assert [grade.outcome for grade in grades] == [1, 0, 0, 0]


def test_the_bonus_is_half_of_what_a_correct_answer_earns():
    assert ConsistencyBonus().weight == 0.5


def test_likelihoods_above_the_bound_count_as_the_bound():
    # 0.99, 0.96, 0.95 become 0.95 each: all are paid. Unclipped their mean is 0.9667, and 0.96 and 0.95 are not.
    assert [g.outcome for g in graded(answers(0.99, 0.96, 0.95), [True] * 3)[0]] == [1, 1, 1]
    assert [g.outcome for g in graded(answers(0.99, 0.96, 0.95), [True] * 3, most=1.0)[0]] == [1, 0, 0]


def test_within_the_margin_below_the_mean_an_answer_is_paid():
    # Mean of 0.9, 0.89, 0.86: 0.883; the last one lies 0.023 below it.
    assert [g.outcome for g in graded(answers(0.9, 0.89, 0.86), [True] * 3)[0]] == [1, 1, 0]
    assert [g.outcome for g in graded(answers(0.9, 0.89, 0.86), [True] * 3, margin=0.03)[0]] == [1, 1, 1]


@pytest.mark.parametrize("n", range(1, 12))
def test_equal_likelihoods_are_all_paid_whatever_their_mean_rounds_to(n):
    assert consistent([0.1] * n) == [True] * n


def test_the_likelihood_is_the_geometric_mean_over_the_answers_tokens():
    class Uneven(Average):
        async def score_under(self, model, paths):
            return [[math.log(0.8), math.log(0.2)]]  # sqrt(0.16) = 0.4; their mean were 0.5

    part = ConsistencyBonus().build(None)
    [grade] = asyncio.run(part(TASK, [written("<answer>ab</answer>")], Uneven(), [True]))
    assert grade.parts["likelihood"] == pytest.approx(0.4)


def test_without_an_answer_in_its_place_or_a_verdict_there_is_no_bonus():
    grades, asked, metrics = graded(["0.9", *answers(0.5, 0.5)], [True, None, False])
    assert [grade.outcome for grade in grades] == [0, None, 0]
    assert not asked
    assert metrics == {"groups/compared": 0, "groups/parted": 0}
    assert graded([], [])[0] == []


def test_a_mark_that_leaves_no_reasoning_is_refused():
    with pytest.raises(ValidationError, match="leaves no reasoning"):
        ConsistencyBonus(extract="whole")


# The recipe --------------------------------------------------------------------------------------------------------

BRIEF = ["steps=3", "tasks_per_step=8", "learner.warmup_steps=1", "evaluate.n=0", "rollouts_every=1", "track=[]"]


def care(folder, name, *overrides):
    return load_recipe("grpo-care", [*BRIEF, *overrides, f"output={folder}", f"name={name}"])


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def rollouts(path, step):
    return pq.read_table(path / "rollouts" / f"step-{step:06d}.parquet").to_pylist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(care(tmp_path_factory.mktemp("care"), "whole"))


def test_some_correct_answers_get_the_bonus_and_some_do_not(whole):
    lines = metrics(whole)
    assert any(0 < line["reward/part/consistency-bonus/paid"] < 1 for line in lines)
    parted = [line for line in lines if line["reward/consistency-bonus/groups/parted"]]
    assert parted
    assert all(line["reward/consistency-bonus/likelihood/lead"] > 0 for line in parted)


def test_the_average_follows_the_policy_from_afar(whole):
    distance = [line["average/distance"] for line in metrics(whole)]
    assert 0 < distance[0] < distance[1] < distance[2]
    assert [line["average/updates"] for line in metrics(whole)] == [1, 2, 3]


def test_without_the_bonus_the_same_tokens_have_other_advantages(whole, tmp_path):
    plain = train(care(tmp_path, "plain", "stages.0.reward.1.weight=0"))
    a, b = rollouts(whole, 1), rollouts(plain, 1)
    assert [row["completion"] for row in a] == [row["completion"] for row in b]
    assert [row["advantage"] for row in a] != [row["advantage"] for row in b]


def test_answers_are_as_likely_as_the_average_says(tmp_path):
    # decay 0 is the policy itself, after each step. Not clipped, since most answers of the base model are certain.
    runs = [
        train(care(tmp_path, name, "steps=2", "stages.0.reward.1.most=1", f"average.decay={decay}"))
        for name, decay in (("policy", 0), ("average", 0.995))
    ]
    policy, average = map(metrics, runs)
    assert [line["average/distance"] for line in policy] == [0, 0]
    assert [row["completion"] for row in rollouts(runs[0], 1)] == [row["completion"] for row in rollouts(runs[1], 1)]
    key = "reward/part/consistency-bonus/likelihood"
    assert policy[0][key] == average[0][key], "both begin as the policy"
    assert policy[1][key] != average[1][key]


def test_a_resumed_run_has_the_same_bits(whole, tmp_path):
    done = []
    with pytest.raises(Interrupted):
        train(care(tmp_path, "cut"), interrupted=lambda: done.append(1) or len(done) > 1)
    assert len(metrics(tmp_path / "cut")) == 2
    train(care(tmp_path, "cut"), resume=True)

    def untimed(path):
        return [{k: v for k, v in line.items() if "second" not in k and k != "time"} for line in metrics(path)]

    assert untimed(tmp_path / "cut") == untimed(whole)
    weights = [load_file(path / "model" / "model.safetensors") for path in (whole, tmp_path / "cut")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("overrides", "match"),
    [
        (["average=null"], r"average: got none, but reward.kind 'consistency-bonus' reads the slow average"),
        (["stages.0.reward=[task]"], r"average: got decay 0.995, but nothing here reads it"),
        (["reward=[task,consistency-bonus]"], r"evaluations do not have; allowed: in a stage's own reward"),
    ],
)
def test_an_average_is_there_where_it_is_read_and_nowhere_else(overrides, match):
    with pytest.raises(RecipeError, match=match):
        load_recipe("grpo-care", overrides)


def test_a_stage_whose_reward_judges_nothing_is_refused_before_a_model_is_loaded(tmp_path):
    alone = care(tmp_path, "alone", "model=/nowhere", "stages.0.reward=[consistency-bonus]")
    with pytest.raises(RecipeError, match="which is told what another part has judged"):
        train(alone)
