import math
from dataclasses import replace

import pytest
import torch
from graded_trees import graded
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.types import Credited
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.papers.direct_advantage.rollout_next_steps import NextSteps
from lyceum.papers.pacs.objective_pacs import PACS, balanced, relative_score
from lyceum.utils.errors import RecipeError


def test_a_score_is_the_log_ratio_against_the_mean_of_the_siblings():
    # 0.3 - (0.1 - 0.4) / 2, ...: leave-one-out, not the group's mean, which would give 0.3 of the first.
    score = relative_score(torch.tensor([0.3, 0.1, -0.4, 1.0, 0.0]), torch.tensor([0, 0, 0, 1, 1]), beta=2.0)
    torch.testing.assert_close(score, 2 * torch.tensor([0.45, 0.15, -0.6, 1.0, -1.0]))


def test_both_verdicts_of_a_group_weigh_the_same():
    correct = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 0])
    group, counts = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2]), torch.tensor([True] * 7 + [False])
    expected = torch.tensor([2.0, 2 / 3, 2 / 3, 2 / 3, 1, 1, 1, 1])  # 4 / (2 * 1) and 4 / (2 * 3); all equal: 1
    torch.testing.assert_close(balanced(correct, group, counts), expected)


def test_the_loss_is_the_cross_entropy_of_scores_and_verdicts(batch_of):
    # Log-ratios 0.2 and -0.2: scores +-0.4, verdicts 1 and 0: log(1 + exp(-0.4)) each.
    batch = batch_of([[1, 1], [1, 0]], "sequence", logprob=[[-0.9, -0.9], [-1.2, 0.0]])
    batch = replace(batch, couple=torch.tensor([7, 7]), label=torch.tensor([1.0, 0.0]))
    loss, metrics = PACS().build()(batch)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-0.4)))
    # d/dr of the first: (-(1 - s) [own] - (1 - s) [as the sibling of the second]) / 2, s = sigmoid(0.4)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    slope = 1 / (1 + math.exp(0.4))
    torch.testing.assert_close(gradient, torch.tensor([[-slope, -slope], [slope, 0.0]]).double())
    assert float(metrics["pacs/score_gap"][0]) == pytest.approx(0.8)


def test_a_plan_couples_groups_and_leaves_out_rows_without_siblings():
    forest = build_forest([graded(1.0, 0.0, 0.0, 0.0), graded(1.0), graded(1.0, 1.0)])
    credited, everything = Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(forest.n_rows)]
    plan = PACS().build().plan(forest, credited, everything)
    assert plan.couple.tolist() == [0, 0, 0, 0, 1, 2, 2]
    assert plan.trained.tolist() == [True] * 4 + [False] + [True] * 2
    torch.testing.assert_close(plan.weight.sum(1), torch.tensor([2.0, 2 / 3, 2 / 3, 2 / 3, 0, 1, 1]) / 6)
    assert plan.counts == {"groups_of_both": 1}
    plain = PACS(balance=False).build().plan(forest, credited, everything)
    torch.testing.assert_close(plain.weight.sum(1), plan.trained / 6)


def test_without_verdicts_it_is_refused():
    forest = build_forest([graded(0.5, 0.25)])
    with pytest.raises(RecipeError, match=r"objective.kind: got 'pacs'.*no verdict.*allowed"):
        PACS().build().plan(forest, Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(2)])


def test_a_rollout_that_cuts_steps_without_a_verdict_is_refused_beforehand():
    (line,) = PACS().conflicts(Composition(rollout=NextSteps(others="value")))
    assert "got 'next-steps', which ends next steps without a verdict" in line
    assert PACS().conflicts(Composition(rollout=NextSteps(others="finish"))) == []


def test_groups_larger_than_a_micro_batch_have_the_gradient_of_one_pass():
    forest = build_forest([graded(1.0, 0.0, 0.0, 1.0), graded(0.0, 1.0)])

    def step(budget):
        config = LocalConfig(micro_batch_tokens=budget, max_grad_norm=1e9, lr=1e-2, epochs=2)
        learner = LocalLearner(policy_like(plain_model()), config, total_steps=1, needs=frozenset())
        # The second of two updates: before the first every score is 0.
        metrics = learner.step(forest, Credited(torch.zeros(forest.rows().index.shape)), PACS().build())
        return metrics, [p.grad for p in learner.parameters]

    whole, expected = step(10**6)
    split, got = step(12)
    assert split["rows_in_two_passes"] == 12
    assert "rows_in_two_passes" not in whole
    assert split["pacs/score_gap"] == pytest.approx(whole["pacs/score_gap"], rel=1e-4)
    largest = max(float(e.abs().max()) for e in expected)
    assert all(float((g - e).abs().max()) <= 1e-5 * largest for g, e in zip(got, expected, strict=True))
