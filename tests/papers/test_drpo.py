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
from lyceum.papers.drpo.objective_drpo import DRPO, length_share, soft_maximum
from lyceum.utils.errors import RecipeError

RIGHT = torch.tensor([True, True, False])
ONE = torch.zeros(3, dtype=torch.long)


def of_one_group(batch, right):
    return replace(batch, couple=torch.full((len(right),), 7), label=torch.tensor(right))


def test_length_divides_the_lift_among_correct_rows_alone():
    # r = 0.8, 0.6 at 20 and 40 of 100 tokens; over 0.2: 4 and 3, so e / (1 + e) and 1 / (1 + e). The wrong row of 5
    # tokens has no part in it.
    share = length_share(torch.tensor([20, 40, 5]), RIGHT, ONE, max_tokens=100, by=0.2)
    e = math.e
    torch.testing.assert_close(share, torch.tensor([e / (1 + e), 1 / (1 + e), 0.0]))
    even = length_share(torch.tensor([20, 40, 5]), RIGHT, ONE, max_tokens=100, by=1e6)
    torch.testing.assert_close(even, torch.tensor([0.5, 0.5, 0.0]), atol=1e-5, rtol=0)


def test_a_ratio_of_lengths_beyond_float32_lifts_the_shortest_alone():
    share = length_share(torch.tensor([1, 10**6, 5]), RIGHT, ONE, max_tokens=1, by=1e-38)
    assert share.tolist() == [1, 0, 0]


def test_the_soft_maximum_is_the_mean_where_it_is_warm_and_the_highest_where_it_is_cold():
    score, among = torch.tensor([-1.0, -3.0, -0.1]), torch.tensor([True, True, False])
    # 10 log((exp(-0.1) + exp(-0.3)) / 2) by hand: -1.9500...
    expected = 10 * math.log((math.exp(-0.1) + math.exp(-0.3)) / 2)
    torch.testing.assert_close(soft_maximum(score, among, ONE, 1, temperature=10), torch.tensor([expected]))
    cold = soft_maximum(score, among, ONE, 1, temperature=1e-3)
    torch.testing.assert_close(cold, torch.tensor([-1 - 1e-3 * math.log(2)]))


def test_a_long_correct_row_is_lifted_less_and_never_lowered(batch_of):
    # Mean log-probabilities: -1 and -1 (correct, of 1 and 3 tokens), -2 (wrong, of 2): scores over 3 tokens at most.
    mask = [[1, 0, 0], [1, 1, 1], [1, 1, 0]]
    batch = batch_of(mask, "sequence", logprob=[[-1, 0, 0], [-0.5, -1, -1.5], [-2, -2, 0]])
    batch = replace(batch, old_logprob=batch.logprob.detach())
    loss, metrics = DRPO(max_tokens=3, length_temperature=1.0).build()(of_one_group(batch, [1.0, 1.0, 0.0]))
    # Lifted: -1 whatever the shares; lowered: the only wrong row's -2. The batch's weights add up to 1.
    assert loss.item() == pytest.approx(-2 - (-1))
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    # r = 2/3 and 0: shares exp(2/3) / (1 + exp(2/3)) = 0.6608 and 0.3392, each over its row's tokens; the wrong row 1.
    short = math.exp(2 / 3) / (1 + math.exp(2 / 3))
    expected = [[-short, 0, 0], [-(1 - short) / 3] * 3, [0.5, 0.5, 0]]
    torch.testing.assert_close(gradient, torch.tensor(expected).double(), atol=1e-6, rtol=0)
    assert float(metrics["drpo/moved_by_length"][0]) == pytest.approx(short - 0.5)
    assert float(metrics["drpo/outside"][0]) == 0


def test_beyond_the_trust_region_half_the_squared_excess_is_added(batch_of):
    # Old less current: 0.1 and 0.3 of 2 tokens, a mean of 0.2; (0.2 - 0.05)^2 / 2 times 1000 = 11.25.
    batch = batch_of([[1], [1]], "sequence", logprob=[[-1.1], [-1.3]])
    loss, metrics = DRPO(trust_region=0.05).build()(of_one_group(batch, [1.0, 0.0]))
    free, _ = DRPO(trust_region=0.05, penalty=0).build()(of_one_group(batch, [1.0, 0.0]))
    assert loss.item() - free.item() == pytest.approx(11.25)
    assert float(metrics["drpo/outside"][0]) == 1


def test_groups_of_one_verdict_teach_nothing_and_count():
    forest = build_forest([graded(1.0, 0.0, 0.0), graded(1.0, 1.0), graded(0.0)])
    credited, everything = Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(forest.n_rows)]
    plan = DRPO().build().plan(forest, credited, everything)
    assert plan.trained.tolist() == [True] * 3 + [False] * 3
    torch.testing.assert_close(plan.weight.sum(1), torch.tensor([1, 1, 1, 0, 0, 0]) / 9)  # 1/3 of a group in three
    assert plan.counts == {"drpo/groups": 1, "drpo/groups_of_one_verdict": 2}


def test_without_verdicts_it_is_refused():
    forest = build_forest([graded(0.5, 0.25)])
    with pytest.raises(RecipeError, match=r"objective.kind: got 'drpo'.*no verdict.*allowed"):
        DRPO().build().plan(forest, Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(2)])
    (line,) = DRPO().conflicts(Composition(rollout=NextSteps(others="value")))
    assert "got 'next-steps', which ends next steps without a verdict" in line


def test_groups_larger_than_a_micro_batch_have_the_gradient_of_one_pass():
    forest = build_forest([graded(1.0, 0.0, 0.0, 1.0), graded(0.0, 1.0)])

    def step(budget):
        config = LocalConfig(micro_batch_tokens=budget, max_grad_norm=1e9, lr=1e-2, epochs=2)
        learner = LocalLearner(policy_like(plain_model()), config, total_steps=1, needs=frozenset())
        metrics = learner.step(forest, Credited(torch.zeros(forest.rows().index.shape)), DRPO(max_tokens=9).build())
        return metrics, [p.grad for p in learner.parameters]

    whole, expected = step(10**6)
    split, got = step(12)
    assert split["rows_in_two_passes"] == 12
    assert split["drpo/margin"] == pytest.approx(whole["drpo/margin"], rel=1e-4)
    largest = max(float(e.abs().max()) for e in expected)
    assert all(float((g - e).abs().max()) <= 1e-4 * largest for g, e in zip(got, expected, strict=True))
