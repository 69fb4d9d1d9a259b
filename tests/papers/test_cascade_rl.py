import math
from dataclasses import replace

import pytest
import torch
from graded_trees import graded
from pydantic import ValidationError

from lyceum.core.forest import build_forest
from lyceum.core.types import Credited
from lyceum.objective.dpo import DPO
from lyceum.papers.cascade_rl.objective_mpo import MPO


@pytest.fixture
def pair(batch_of):
    """Log-ratios, chosen 0.5 + 0.5 and rejected -1 (its second token is not written): rewards of 0.1 and -0.1."""
    batch = batch_of(
        [[1, 1], [1, 0]],
        logprob=[[-1.0, -3.0], [-2.0, -7.0]],
        reference_logprob=[[-1.5, -3.5], [-1.0, -1.0]],
    )
    weight = torch.tensor([[0.5, 0.5], [1.0, 0.0]]).double()  # as planned: 1 / chosen tokens, and 1 / pairs
    label = torch.tensor([1.0, -1.0])
    return replace(batch, weight=weight, couple=torch.tensor([4, 4]), label=label, thresholds={"shift": 0.05})


def softplus(x):
    return math.log(1 + math.exp(x))


def test_its_three_losses_are_those_of_the_formulas_with_their_weights(pair):
    # beta (h+ - h-) = 0.2; beta h+ - d = 0.05, beta h- - d = -0.15; the chosen tokens cost 1 and 3 nats.
    preference, quality, generation = softplus(-0.2), softplus(-0.05) + softplus(-0.15), 2.0
    loss, metrics = MPO().build()(pair)
    assert loss.item() == pytest.approx(0.8 * preference + 0.2 * quality + 1.0 * generation)
    found = {name: float(total / weight) for name, (total, weight) in metrics.items()}
    assert found == pytest.approx(
        {
            "dpo/margin": 0.2,
            "dpo/accuracy": 1,
            "dpo/chosen_logprob": -2,
            "dpo/rejected_logprob": -2,
            "mpo/preference": preference,
            "mpo/quality": quality,
            "mpo/generation": generation,
            "mpo/reward": 0,
        }
    )


def gradient_of(settings, batch):
    loss, _ = settings.build()(batch)
    return loss.item(), *torch.autograd.grad(loss, batch.logprob)


def test_with_one_weight_alone_it_is_that_part(pair):
    loss, gradient = gradient_of(MPO(preference=1, quality=0, generation=0), pair)
    of_pair = replace(pair, weight=torch.tensor([[0.25, 0.25], [0.5, 0.0]]).double())  # dpo's own weights
    expected, its_gradient = gradient_of(DPO(), of_pair)
    assert loss == pytest.approx(expected)
    torch.testing.assert_close(gradient, its_gradient)

    loss, gradient = gradient_of(MPO(preference=0, quality=0, generation=1), pair)
    assert loss == 2
    torch.testing.assert_close(gradient, torch.tensor([[-0.5, -0.5], [0.0, 0.0]]).double())

    loss, gradient = gradient_of(MPO(preference=0, quality=1, generation=0), pair)
    assert loss == pytest.approx(softplus(-0.05) + softplus(-0.15))
    # d/dh+ = -beta (1 - sigmoid(0.05)), d/dh- = beta (1 - sigmoid(0.15)): each answer by itself.
    up, down = (0.1 / (1 + math.exp(x)) for x in (0.05, 0.15))
    torch.testing.assert_close(gradient, torch.tensor([[-up, -up], [down, 0.0]]).double())


def test_chosen_tokens_weigh_alike_and_pairs_weigh_alike():
    # Two pairs, of 3 and 9 tokens and of 3 and 7 (best with worst), and an answer that is in none.
    forest = build_forest([graded(1.0, 0.0), graded(1.0, 0.5, 0.0, lengths=(3, 9, 7))])
    plan = MPO().build().plan(forest, Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(5)])
    assert plan.label is not None
    assert plan.label.tolist() == [1, -1, 1, 0, -1]
    torch.testing.assert_close(plan.weight.sum(1), torch.tensor([0.5, 0.5, 0.5, 0, 0.5]))
    torch.testing.assert_close(plan.weight[0].max(), torch.tensor(1 / 6))
    torch.testing.assert_close(plan.weight[4].max(), torch.tensor(1 / 2 / 7))


def test_answers_weigh_alike_in_the_generation_loss_where_it_is_a_mean_over_answers():
    # Chosen answers of 3 and 4 tokens: 1 / 7 of a token each over tokens; 1 / 2 / 3 and 1 / 2 / 4 over answers.
    forest = build_forest([graded(1.0, 0.0), graded(0.0, 0.5, 1.0, lengths=(3, 9, 4))])
    plan = MPO(generation_aggregate="sequence").build()
    weight = plan.plan(forest, Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(5)]).weight
    torch.testing.assert_close(weight[[0, 4]].max(1).values, torch.tensor([1 / 6, 1 / 8]))
    over_tokens = MPO().build().plan(forest, Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(5)]).weight
    torch.testing.assert_close(over_tokens[[0, 4]].max(1).values, torch.tensor([1 / 7, 1 / 7]))


def test_the_shift_is_the_mean_of_earlier_steps_rewards_and_comes_back():
    objective = MPO().build()
    forest = build_forest([graded(1.0, 0.0)])

    def shift(of):
        return of.plan(forest, Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(2)]).thresholds["shift"]

    assert shift(objective) == 0
    for reward in (0.3, 0.1):
        objective.observe({"mpo/reward": reward})
    objective.observe({"loss": 0.0})  # a step without a pair
    assert shift(objective) == pytest.approx(0.2)
    again = MPO().build()
    again.load_state_dict(objective.state_dict())
    assert shift(again) == pytest.approx(0.2)
    without = MPO(shift="none").build()
    without.observe({"mpo/reward": 0.3})
    assert shift(without) == 0


def test_what_it_cannot_use_is_refused(batch_of):
    with pytest.raises(ValueError, match="needs pairs"):
        MPO().build()(batch_of([[1]]))
    with pytest.raises(ValidationError, match="got 0 for all"):
        MPO(preference=0, quality=0, generation=0)
