import pytest
import torch

from lyceum.papers.kimi_k1_5.objective_squared_log_ratio import SquaredLogRatio, regression_loss


def test_the_loss_is_the_squared_error_less_a_constant():
    # (A - tau l)^2 / (2 tau) - A^2 / (2 tau), tau 1/2: (1 - 1)^2 - 1 = -1; (-1 - 1)^2 - 1 = 3; nothing at l = 0.
    loss = regression_loss(torch.tensor([2.0, 2.0, 0.0]), torch.tensor([1.0, -1.0, 1.0]), tau=0.5)
    torch.testing.assert_close(loss, torch.tensor([-1.0, 3.0, 0.0]))


def test_a_trajectory_is_pushed_until_its_log_ratio_is_its_advantage_over_tau(batch_of):
    # Whole log-ratios 0, 1 and 2 (of two tokens; the third row has one), A = 1, tau = 1/2: slopes tau l - A = -1, -1/2
    # and 0, the same on each token of a row, over 3 rows. Summed, not averaged: row 2's tokens moved 1/2 each.
    columns = {"logprob": [[-1.0, -1.0], [-0.5, -0.5], [1.0, 0.0]]}
    batch = batch_of([[1, 1], [1, 1], [1, 0]], "sequence", **columns)
    loss, metrics = SquaredLogRatio(tau=0.5).build()(batch)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, -1.0], [-0.5, -0.5], [0.0, 0.0]]).double() / 3)
    assert float(metrics["regression/error"][0]) == pytest.approx(1 + 0.5 + 0)
    assert float(metrics["regression/held"][0]) == pytest.approx(0 + 0.5 + 1)


def test_a_row_without_advantage_is_held_where_it_is(batch_of):
    batch = batch_of([[1]], "sequence", logprob=[[1.0]], advantage=[[0.0]])
    objective = SquaredLogRatio(tau=0.5).build()
    (gradient,) = torch.autograd.grad(objective(batch)[0], batch.logprob)
    assert gradient.item() == pytest.approx(0.5 * 2)
    assert not objective.skips
