import math
from dataclasses import replace

import pytest
import torch
from graded_trees import graded

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.types import Credited
from lyceum.papers.kl_as_inference.objective_forward_kl import ForwardKL, posterior_share
from lyceum.rollout.flat import Flat


def test_shares_are_the_posterior_of_the_group():
    # exp(log 3) : exp(0) = 3 : 1; a sample that the reference would have drawn twice as often weighs twice; huge
    # evidence does not overflow; one that does not count has none.
    evidence = torch.tensor([math.log(3), 0, 1e9 + math.log(2), 1e9, 5.0], dtype=torch.float64)
    among = torch.tensor([True] * 4 + [False])
    share = posterior_share(evidence, torch.tensor([0, 0, 1, 1, 1]), among)
    torch.testing.assert_close(share, torch.tensor([3 / 4, 1 / 4, 2 / 3, 1 / 3, 0]), rtol=1e-6, atol=1e-6)


def plan_of(forest, updates, **settings):
    credited = Credited(torch.zeros(forest.rows().index.shape))
    return ForwardKL(**settings).build().plan(forest, credited, updates)


def test_a_plan_imitates_each_sample_by_its_share():
    # Rewards 1 and 0, beta 1 / log 3: shares 3/4 and 1/4 of whole samples, over 2 groups in the first update.
    forest = build_forest([graded(1.0, 0.0), graded(0.0, 0.0), graded(1.0, 1.0)])
    # The reference: log 2 above the policy on each of the 3 tokens of the first row, 8 times as likely.
    drift = torch.zeros(forest.n_tokens)
    drift[forest.rows().index[0][forest.trainable(forest.rows())[0]]] = math.log(2)
    zero = torch.zeros(forest.n_tokens)
    forest = forest.with_columns(old_logprob=zero, reference_logprob=drift)
    updates = [torch.tensor([0, 1, 2, 3]), torch.tensor([4, 5])]
    beta = 1 / math.log(3)
    first = plan_of(forest, updates, beta=beta, prior="old")
    torch.testing.assert_close(first.weight.amax(1), torch.tensor([3 / 8, 1 / 8, 1 / 4, 1 / 4, 1 / 2, 1 / 2]))
    assert (first.weight[1] > 0).sum() == 9  # every token of a sample alike: the likelihood is the whole sample's
    assert first.counts["forward_kl/effective_samples"] == pytest.approx((1 / (9 / 16 + 1 / 16) + 2 + 2) / 3)
    assert first.counts["forward_kl/moved"] == pytest.approx(1 / 4 / 3)
    # With the reference as the prior 3 * 8 : 1.
    tilted = plan_of(forest, updates, beta=beta)
    torch.testing.assert_close(tilted.weight.amax(1)[:2], torch.tensor([24 / 50, 1 / 50]))


def test_the_loss_is_the_weighted_cross_entropy(batch_of):
    batch = batch_of([[1, 1], [1, 0]], logprob=[[-1.0, -2.0], [-3.0, 0.0]])
    batch = replace(batch, weight=torch.tensor([[0.75, 0.75], [0.25, 0.25]]).double())
    loss, _ = ForwardKL().build()(batch)
    assert loss.item() == pytest.approx(0.75 * 3 + 0.25 * 3)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    torch.testing.assert_close(gradient, -torch.tensor([[0.75, 0.75], [0.25, 0.0]]).double())


def test_one_sample_alone_has_nothing_to_be_weighed_against():
    (line,) = ForwardKL().conflicts(Composition(rollout=Flat(samples=1)))
    assert line.startswith("rollout.samples: got 1, but objective.kind 'forward-kl' compares the samples")
