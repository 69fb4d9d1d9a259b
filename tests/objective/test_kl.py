import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.objective.kl import kl_estimate


def test_estimates_of_a_token_twice_as_likely_under_the_policy():
    # x = log(q / p) = -log 2: k1 = log 2, k2 = log(2)^2 / 2, k3 = 1/2 - 1 + log 2
    policy, reference = torch.tensor([[0.0]]), torch.tensor([[-math.log(2)]])
    for estimator, expected in {"k1": math.log(2), "k2": math.log(2) ** 2 / 2, "k3": math.log(2) - 0.5}.items():
        torch.testing.assert_close(kl_estimate(policy, reference, estimator), torch.tensor([[expected]]))


@given(st.floats(-30, 0, width=32), st.floats(-30, 0, width=32))
def test_k2_and_k3_are_never_negative_in_float32(policy, reference):
    # exp(x) - 1 - x written out is -6e-8 at x = 1e-7
    for estimator in ("k2", "k3"):
        assert kl_estimate(torch.tensor([[policy]]), torch.tensor([[reference]]), estimator).item() >= 0


def test_k3_of_close_policies_keeps_its_digits_in_float32():
    # x^2 / 2 = 5e-9 for x = 1e-4; exp(x) - 1 - x loses it among roundings of 6e-8
    k3 = kl_estimate(torch.tensor([[0.0]]), torch.tensor([[1e-4]]), "k3").item()
    assert k3 == pytest.approx(5e-9, rel=0.01)


def test_k3_past_the_limit_is_finite_and_does_not_push():
    logprob = torch.tensor([[-200.0]], requires_grad=True)
    k3 = kl_estimate(logprob, torch.tensor([[0.0]]), "k3")
    k3.sum().backward()
    assert k3.isfinite().all()
    assert logprob.grad is not None
    assert (logprob.grad == 0).all()  # with -x left uncut it would be +1: away from the reference


def expected_gradient(loss, estimator, logits, reference):
    """Gradient of the estimate as a loss, in exact expectation over what the policy draws."""
    logits = logits.clone().requires_grad_()
    policy = logits.log_softmax(0)
    loss(policy, reference, estimator).backward()
    return logits.grad


def test_as_a_loss_k1_teaches_nothing_k2_the_divergence_and_k3_the_reverse_one():
    logits, reference = torch.tensor([0.3, -0.8, 0.5]).double(), torch.tensor([0.2, 0.3, 0.5]).double().log()

    def drawn(policy, reference, estimator):
        return (policy.exp().detach() * kl_estimate(policy, reference, estimator)).sum()

    def forward(policy, reference, _):
        return (policy.exp() * (policy - reference)).sum()

    def reverse(policy, reference, _):
        return (reference.exp() * (reference - policy)).sum()

    torch.testing.assert_close(expected_gradient(drawn, "k1", logits, reference), torch.zeros(3).double())
    for estimator, divergence in {"k2": forward, "k3": reverse}.items():
        given = expected_gradient(drawn, estimator, logits, reference)
        torch.testing.assert_close(given, expected_gradient(divergence, "", logits, reference))
