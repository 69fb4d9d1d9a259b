"""HAPO: the credit's means over tokens and relative entropy, the objective's ranges, and the recipe as shipped."""

import pytest
import torch

from lyceum.papers.hapo.credit_hapo import relative_entropy, token_level_advantage
from lyceum.papers.hapo.objective_hapo import HAPO, clip_range, redistributed
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def test_a_groups_mean_and_deviation_are_over_its_tokens():
    # Rewards 1 and 0 of 1 and 3 tokens: mean 1/4, deviation sqrt((9/16 + 3/16) / 4) = sqrt(3) / 4; advantages sqrt(3)
    # and -1 / sqrt(3), of which one token's and three tokens' sum to 0. Over rows they would be 1 and -1.
    advantage = token_level_advantage(
        torch.tensor([1.0, 0.0, 0.3, 0.3]), torch.tensor([1, 3, 5, 2]), torch.tensor([0, 0, 1, 1]), eps=1e-9
    )
    torch.testing.assert_close(advantage, torch.tensor([3**0.5, -(3**-0.5), 0, 0]))


def test_a_short_row_among_long_ones_falls_back_on_rows():
    # 1 token of 101: mean 1/101, advantage 10, which is more than 5: as GRPO, 0.5 / sqrt(0.5).
    advantage = token_level_advantage(torch.tensor([1.0, 0.0]), torch.tensor([1, 100]), torch.tensor([0, 0]), eps=1e-9)
    torch.testing.assert_close(advantage, torch.tensor([0.5**0.5, -(0.5**0.5)]))


def test_relative_entropy_by_hand():
    # Logarithms -4 -2 -1 0 1: the 0.5 quantile is -1; above it distances of 2, below of 3.
    entropy = torch.tensor([[-4.0, -2, -1, 0, 1, 9]]).exp()
    mask = torch.tensor([[True] * 5 + [False]])
    h = relative_entropy(entropy, mask, 0.5)
    torch.testing.assert_close(h, torch.tensor([[-1, -1 / 3, 0, 0.5, 1, 0]]))
    assert (relative_entropy(torch.ones(1, 6), mask, 0.8) == 0).all()


def test_low_entropy_widens_below_and_high_entropy_above():
    low, high = clip_range(torch.tensor([[-1.0, -0.5, 0.0, 1.0]]), 0.2, 0.3)
    torch.testing.assert_close(low, torch.tensor([[0.4, 0.3, 0.2, 0.2]]))
    torch.testing.assert_close(high, torch.tensor([[0.3, 0.3, 0.3, 0.6]]))


def test_advantages_of_clear_signals_are_scaled():
    h = torch.tensor([[0.5, 0.5, -0.5, -0.5]])
    ratio = torch.tensor([[1.0, 1.2, 1.0, 0.8]])  # inside, outside, inside, outside of 0.9 to 1.1
    half = torch.full((1, 4), 0.2)
    torch.testing.assert_close(
        redistributed(torch.full((1, 4), 2.0), h, ratio, half, half), torch.tensor([[2.0, 3.0, 1.0, 2.0]])
    )


def test_a_token_within_its_wider_range_keeps_its_gradient(batch_of):
    # Ratio 1.3, advantage 1: clipped at 1.2; with h = 1 the range ends at 1.4. The ratio is outside 1 +- half of that:
    # its advantage is 2.
    logprob = torch.tensor([[-1.0, -1.0]]) + torch.tensor(1.3).log()
    batch = batch_of([[1, 1]], logprob=logprob, relative_entropy=torch.tensor([[0.0, 1.0]]).double())
    loss, metrics = HAPO().build()(batch)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, -1.3]]).double(), rtol=1e-5, atol=1e-7)
    assert metrics["hapo/redistributed"][0] == 1
    assert metrics["hapo/wider_clip"][0] == 1
    off, _ = HAPO(redistribute=False, adapt_clip=False).build()(batch)
    assert off.item() == pytest.approx(-1.2)


def test_the_loss_of_a_token_that_got_likelier_against_its_advantage_is_bounded(batch_of):
    # Ratio 12, advantage -1 as it is: the loss is 12; with a dual clip at 10 it is 10, without a gradient. A ratio of 9
    # is within it, and what has a positive advantage is bounded by the clip range alone.
    logprob = torch.tensor([12.0, 9.0, 12.0]).log()[None] - 5
    plain = {"redistribute": False, "adapt_clip": False, "aggregate": "token"}

    def learnt(dual_clip):
        h = torch.zeros(1, 3).double()
        batch = batch_of(
            [[1, 1, 1]], logprob=logprob, old_logprob=[[-5.0] * 3], advantage=[[-1.0, -1, 1]], relative_entropy=h
        )
        loss, metrics = HAPO(dual_clip=dual_clip, **plain).build()(batch)
        (gradient,) = torch.autograd.grad(loss, batch.logprob)
        return loss.item() * 3, (gradient * 3).tolist(), metrics

    loss, gradient, metrics = learnt(10.0)
    assert loss == pytest.approx(10 + 9 - 1.2)
    assert gradient[0] == pytest.approx([0, 9, 0])
    assert metrics["clip/dual"][0] == 1
    loss, gradient, metrics = learnt(None)
    assert loss == pytest.approx(12 + 9 - 1.2)
    assert gradient[0] == pytest.approx([12, 9, 0])
    assert "clip/dual" not in metrics
    assert load_recipe("hapo").stages[0].objective.dual_clip == 10


def test_the_objective_needs_the_credit():
    with pytest.raises(RecipeError, match=r"credit\.kind: got 'group', but objective\.kind 'hapo'"):
        load_recipe("hapo", ["credit=group"])
