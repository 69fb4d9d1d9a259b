"""ROVER: Q-values, their targets, a tree that can be enumerated, and what the recipe does as shipped."""

import pytest
import torch

from lyceum.papers.rover.objective_rover import MeanLogprob, Rover, next_token, q_loss


def test_the_target_is_the_reward_plus_the_next_tokens_mean_q(batch_of):
    # Q = 2 * (logprob - old): 1, -1, 0.4. Mean Q of the vocabulary, 2 * (mean - old mean): 0.2, 0.6, -0.2, of which
    # the first token's is no token's next. Targets: 0.5 + 0.6, 0.5 - 0.2, 0.5. Errors: -0.1, -1.3, -0.1; weights 1/3.
    columns = {
        "mean_logprob": torch.tensor([[-3.9, -3.7, -4.1]], dtype=torch.float64),
        "old_mean_logprob": torch.full((1, 3), -4.0).double(),
    }
    batch = batch_of([[1, 1, 1]], advantage=[[0.5] * 3], logprob=[[-0.5, -1.5, -0.8]], **columns)
    loss, metrics = Rover(rho=2.0).build()(batch)
    assert loss.item() == pytest.approx((0.01 + 1.69 + 0.01) / 3)
    assert metrics["rover/abs_next_q"][0].item() == pytest.approx(0.8)
    # d loss / d logprob = weight * 2 (Q - target) * rho: nothing through the target.
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    torch.testing.assert_close(gradient, torch.tensor([[-0.1, -1.3, -0.1]], dtype=torch.float64) * 4 / 3)
    alone, _ = Rover(rho=2.0, bootstrap=0.0).build()(batch)  # errors 0.5, -1.5, -0.1
    assert alone.item() == pytest.approx((0.25 + 2.25 + 0.01) / 3)


def test_the_next_token_is_the_next_one_of_the_mask():
    # Tokens of a tool stand between two turns of the policy: their states are not the policy's next choice.
    mask = torch.tensor([[0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]]).bool()
    value = torch.arange(12.0).view(2, 6)
    assert next_token(value, mask)[0][mask[0]].tolist() == [2.0, 4.0, 0.0]


def test_the_mean_is_over_the_whole_vocabulary():
    logits = torch.tensor([[0.0, 1.0, 5.0]])
    expected = logits.log_softmax(-1).mean(-1)
    torch.testing.assert_close(MeanLogprob()(logits, torch.tensor([1]), {})["mean_logprob"], expected)


def test_on_a_tree_that_can_be_enumerated_it_finds_the_uniform_policys_values():
    # Two binary choices; only 0, 0 earns 1. The uniformly random policy's Q(0) is 1/2, Q(1) is 0: the first choice is
    # the mean of the second's Q, and its argmax is the optimal policy's.
    first, second = torch.zeros(2, requires_grad=True), torch.zeros(2, 2, requires_grad=True)
    optimizer = torch.optim.SGD([first, second], lr=0.2)
    for _ in range(100):
        loss = q_loss(first[None], second.mean(1)[None]).sum() + q_loss(second, torch.tensor([[1.0, 0], [0, 0]])).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(first.detach(), torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(second.detach(), torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
