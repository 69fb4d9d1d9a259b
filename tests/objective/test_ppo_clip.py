import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.objective.ppo_clip import PPOClip, clipped_surrogate


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (0.5, 1, -0.5),  # worse than before: the whole loss, no lower clip for a good token
        (1.5, 1, -1.28),  # no gain past 1 + 0.28
        (1.25, 1, -1.25),  # inside the upper range, though past 1.2: the ranges are separate
        (0.5, -1, 0.8),  # no gain past 1 - 0.2
        (0.75, -1, 0.8),  # past the lower range, though inside 1 - 0.28
        (1.5, -1, 1.5),  # no upper clip for a bad token
        (5.0, -1, 3.0),  # the dual clip
        (5.0, 1, -1.28),  # which is not for good tokens
    ],
)
def test_each_side_of_the_range(ratio, advantage, loss):
    value = clipped_surrogate(torch.tensor([[ratio]]), torch.tensor([[float(advantage)]]), 0.2, 0.28, dual_clip=3.0)
    torch.testing.assert_close(value, torch.tensor([[loss]]))


def test_a_good_token_clipped_above_keeps_the_gradient_of_the_bound():
    # By the log-probability: -(1 + 0.28) A where the ratio is above, -ratio A inside; a bad token below stays clipped.
    ratio = torch.tensor([2.0, 1.1, 0.5], requires_grad=True)
    loss = clipped_surrogate(ratio, torch.tensor([1.0, 1.0, -1.0]), 0.2, 0.28, keep_high=True)
    torch.testing.assert_close(loss, torch.tensor([-1.28, -1.1, 0.8]))
    (gradient,) = torch.autograd.grad(loss.sum(), ratio)
    torch.testing.assert_close(gradient * ratio, torch.tensor([-1.28, -1.1, 0.0]))


def test_without_dual_clip_a_bad_token_has_no_bound():
    torch.testing.assert_close(clipped_surrogate(torch.tensor(5.0), torch.tensor(-1.0), 0.2, 0.2), torch.tensor(5.0))


@given(st.floats(0.01, 9), st.floats(-3, 3))
def test_a_dual_clip_that_is_never_reached_changes_nothing(ratio, advantage):
    r, a = torch.tensor(ratio), torch.tensor(advantage)
    torch.testing.assert_close(clipped_surrogate(r, a, 0.2, 0.2, dual_clip=10.0), clipped_surrogate(r, a, 0.2, 0.2))


def test_a_bad_token_beyond_the_log_ratio_limit_has_a_bounded_loss_and_no_gradient(batch_of):
    # Ratios e^2 and e^3 with advantage -1, which no clip range bounds: with a limit of 2.5 the second counts as e^2.5.
    batch = batch_of([[1, 1]], logprob=[[-1.0, -1.0]], old_logprob=[[-3.0, -4.0]], advantage=[[-1.0, -1.0]])
    loss, metrics = PPOClip(log_ratio_limit=2.5).build()(batch)
    loss.backward()
    torch.testing.assert_close(loss.item(), (math.exp(2) + math.exp(2.5)) / 2)
    torch.testing.assert_close(batch.logprob.grad, torch.tensor([[math.exp(2), 0.0]]).double() / 2)
    assert metrics["clip/log_ratio"] == (1, 2)
    assert "clip/log_ratio" not in PPOClip().build()(batch)[1]


def test_the_first_update_is_the_policy_gradient(batch_of):
    # ratio 1 everywhere: the two branches of the minimum are equal, and half a gradient from each must make a whole one
    batch = batch_of([[1, 1]], advantage=[[2.0, -3.0]])
    loss, _ = PPOClip().build()(batch)
    loss.backward()
    torch.testing.assert_close(loss.item(), (-2.0 + 3.0) / 2)
    torch.testing.assert_close(batch.logprob.grad, torch.tensor([[-2.0, 3.0]]).double() / 2)


def test_metrics_count_what_the_range_stops(batch_of):
    old = torch.tensor([[-2.0, -2, -2, -2, -2]])
    ratio = torch.tensor([[1.5, 0.5, 0.5, 4.0, 1.0]])
    batch = batch_of(
        [[1, 1, 1, 1, 0]], logprob=old + ratio.log(), old_logprob=old, advantage=[[1.0, 1.0, -1.0, -1.0, -1.0]]
    )
    _, metrics = PPOClip(dual_clip=3.0).build()(batch)
    figure = {name: (total / count).item() for name, (total, count) in metrics.items()}
    # of four tokens: 1.5 stopped above, the second 0.5 below (the first gains nothing), 4 by the dual clip
    k3 = sum(r - 1 - math.log(r) for r in (1.5, 0.5, 0.5, 4.0)) / 4
    expected = {"ratio": 6.5 / 4, "kl/old": k3, "clip/low": 0.25, "clip/high": 0.25, "clip/dual": 0.25}
    expected["importance/mismatch"] = 1.0  # of the sampled -1 and -2 at the start of the step
    assert figure == pytest.approx(expected, rel=1e-6)
    assert not any(x.requires_grad for pair in metrics.values() for x in pair)
