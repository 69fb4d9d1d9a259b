import math
from dataclasses import replace

import pytest
import torch
from graded_trees import graded
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.types import Credited
from lyceum.credit.gae import GAE
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.objective._pairs import graded_pairs
from lyceum.objective.dpo import DPO
from lyceum.rollout.flat import Flat


def test_the_best_is_paired_with_the_worst_inwards_while_they_differ():
    one = ["x"] * 5
    assert graded_pairs(dict(enumerate([0.0, 1.0, 0.5, 1.0, 0.0])), one) == [(1, 4), (3, 0)]
    assert graded_pairs(dict(enumerate([1.0, 1.0, 1.0, 0.0])), ["x"] * 4) == [(0, 3)]
    assert graded_pairs(dict(enumerate([0.0, 1.0, 0.5, 1.0, 0.0])), one, most=1) == [(1, 4)]
    assert graded_pairs(dict(enumerate([0.0, 1.0, 0.4, 0.5])), one, margin=0.2) == [(1, 0)]
    assert graded_pairs({0: 1.0, 1: 0.0, 2: 0.0}, ["x", "y", "x"]) == [(0, 2)], "never of two prompts"


def test_the_loss_is_minus_log_sigmoid_of_the_difference_of_log_ratios(batch_of):
    # Log-ratios of the rows: chosen 0.5 + 0.5, rejected -1 (its second token is not written): margin 0.1 * 2.
    batch = batch_of(
        [[1, 1], [1, 0]],
        "sequence",
        logprob=[[-1.0, -1.0], [-2.0, -7.0]],
        reference_logprob=[[-1.5, -1.5], [-1.0, -1.0]],
    )
    batch = replace(batch, couple=torch.tensor([4, 4]), label=torch.tensor([1.0, -1.0]))
    loss, metrics = DPO(beta=0.1).build()(batch)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-0.2)))
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    # d/ds: -(1 - sigmoid(0.2)) * 0.1 for each token of the chosen one, the opposite for the rejected one.
    slope = 0.1 / (1 + math.exp(0.2))
    torch.testing.assert_close(gradient, torch.tensor([[-slope, -slope], [slope, 0.0]]).double())
    assert [float(metrics[f"dpo/{name}"][0]) for name in ("margin", "accuracy")] == pytest.approx([0.2, 1])


def test_without_pairs_it_is_refused(batch_of):
    with pytest.raises(ValueError, match="needs pairs"):
        DPO().build()(batch_of([[1]]))


def step(forest, budget):
    objective = DPO().build()
    learner = LocalLearner(
        policy_like(plain_model()),
        LocalConfig(micro_batch_tokens=budget, max_grad_norm=1e9, lr=1e-30),
        total_steps=1,
        needs=objective.columns,
    )
    forest = learner.annotate(forest, objective.columns)
    metrics = learner.step(forest, Credited(torch.zeros(forest.rows().index.shape)), objective)
    return metrics, [p.grad for p in learner.parameters]


def test_a_plan_trains_pairs_alone_and_weighs_them_alike():
    forest = build_forest([graded(1.0, 0.0, 1.0), graded(0.0, 0.0), graded(1.0, 0.5, 0.0, 0.0)])
    everything = [torch.arange(forest.n_rows)]
    plan = DPO().build().plan(forest, Credited(torch.zeros(forest.rows().index.shape)), everything)
    assert plan.label.tolist() == [1, -1, 0, 0, 0, 1, 1, -1, -1]
    assert plan.couple.tolist() == [0, 0, 2, 3, 4, 5, 6, 6, 5]
    assert plan.trained.tolist() == [label != 0 for label in plan.label.tolist()]
    torch.testing.assert_close(plan.weight.sum(1), plan.trained / 6)
    assert plan.counts == {"pairs": 3}


def test_pairs_larger_than_a_micro_batch_have_the_gradient_of_one_pass():
    forest = build_forest([graded(1.0, 0.0, 1.0), graded(1.0, 0.5, 0.0, 0.0)])
    whole, expected = step(forest, 10**6)
    split, got = step(forest, 11)  # a prompt and two rows are 13 or more
    assert "rows_in_two_passes" not in whole
    assert split["rows_in_two_passes"] == 6
    assert split["loss"] == pytest.approx(whole["loss"]) == pytest.approx(math.log(2))
    largest = max(float(e.abs().max()) for e in expected)
    assert largest > 0
    assert all(float((g - e).abs().max()) <= 1e-6 * largest for g, e in zip(got, expected, strict=True))


def test_what_it_cannot_use_is_refused_with_the_recipe():
    lines = DPO().conflicts(Composition(rollout=Flat(samples=1), credit=GAE()))
    assert [line.split(":")[0] for line in lines] == ["credit.kind", "rollout.samples"]
    assert DPO().conflicts(Composition(rollout=Flat(samples=2))) == []
