"""What holds for every objective: exact gradients, exact splits, nothing read outside the mask."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lyceum.core.component import kinds
from lyceum.objective.base import Terms
from lyceum.papers.cispo.objective_cispo import clipped_weight_loss

EVERYTHING = {
    "kl": {"coefficient": 0.3, "estimator": "k3"},
    "entropy_coefficient": 0.1,
    "value_coefficient": 0.5,
    "value_clip": 0.2,
    "importance": {"mode": "mask", "level": "sequence", "low": 0.3, "high": 3.0},
}


PLANNED = (
    "dpo",
    "mpo",
    "orpo",
    "inpo",
    "p3o",
    "trpa",
    "kto",
    "oreo",
    "pacs",
    "direct-advantage",
    "drpo",
    "ppo-and-sft",
    "amft",
    "nft",
    "forward-kl",
    "squared-log-ratio",
    "turn-log-ratio",
    "consistency",
)
"""Losses that read a plan's labels, several rows or tokens together, or distributions: they have tests of their own."""


def _cases():
    every = (("sequence", None), ("token", None), ("constant", 7))
    for kind, component in kinds("objective").items():
        if kind in PLANNED:
            continue
        # How weights are made is the same code for all; by sequence they differ from row to row.
        for aggregate, constant in every if kind == "ppo-clip" else every[:1]:
            shared = {"aggregate": aggregate, "constant": constant}
            yield component(**shared)
            if issubclass(component, Terms):
                yield component(**shared, **EVERYTHING)
            if kind == "gspo":
                yield component(**shared, **EVERYTHING, form="token")
            if kind == "ppo-clip":
                yield component(**shared, clip_low=0.1, clip_high=0.3, dual_clip=1.5)


CASES = list(_cases())
COLUMNS = ("advantage", "old_logprob", "behaviour_logprob", "reference_logprob", "entropy", "value", "old_value")

OTHERS = ("mean_logprob", "old_mean_logprob", "teacher_divergence", "teacher_compared_mass", "relative_entropy")
OTHERS += ("masked_logprob", "old_masked_logprob", "masked_entropy", "old_masked_entropy")


def random_batch(batch_of, objective, mask, seed):
    generator = torch.Generator().manual_seed(seed)
    noise = {name: torch.randn(len(mask), len(mask[0]), generator=generator).double() * 0.5 for name in COLUMNS}
    others = {name: torch.rand(len(mask), len(mask[0]), generator=generator).double() for name in OTHERS}
    return batch_of(
        mask,
        objective.aggregate,
        objective.constant,
        logprob=-1 + 0.3 * torch.randn(len(mask), len(mask[0]), generator=generator).double(),
        value_target=noise["value"].flip(0),
        **others,
        **{name: x - 1 if "logprob" in name else x for name, x in noise.items()},
    )


masks = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5)


@pytest.mark.parametrize("component", CASES, ids=repr)
@settings(max_examples=15)
@given(masks, st.integers(0, 2**31), st.data())
def test_any_split_of_rows_adds_up_to_the_whole(component, batch_of, some_rows, mask, seed, data):
    objective = component.build()
    whole = random_batch(batch_of, objective, mask, seed)
    loss, metrics = objective(whole)
    (gradient,) = torch.autograd.grad(loss, whole.logprob)

    part_of_row = torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=len(mask), max_size=len(mask))))
    total, total_gradient, total_metrics = 0.0, torch.zeros_like(gradient), {}
    for part in part_of_row.unique():
        micro = some_rows(whole, part_of_row == part)
        loss_of_part, metrics_of_part = objective(micro)
        total += loss_of_part
        total_gradient += torch.autograd.grad(loss_of_part, whole.logprob)[0]
        for name, pair in metrics_of_part.items():
            total_metrics[name] = torch.stack(pair) + total_metrics.get(name, 0)

    torch.testing.assert_close(total, loss, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(total_gradient, gradient, rtol=1e-12, atol=1e-14)
    assert total_metrics.keys() == metrics.keys()
    for name, pair in metrics.items():
        torch.testing.assert_close(total_metrics[name], torch.stack(pair))


@pytest.mark.parametrize("component", CASES, ids=repr)
def test_nothing_outside_the_mask_is_read(component, batch_of):
    # A hint's tokens have no behaviour log-probability (nan), and a nan there must not reach a weight's gradient.
    objective, mask = component.build(), [[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]
    batch = random_batch(batch_of, objective, mask, 0)
    loss, _ = objective(batch)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    columns = (*COLUMNS, "logprob", "value_target", "weight")
    garbage = {
        name: torch.where(batch.mask, getattr(batch, name).detach(), float("nan")).requires_grad_(name == "logprob")
        for name in columns
    }
    spoilt = replace(batch, **garbage)
    loss_of_spoilt, metrics = objective(spoilt)
    torch.testing.assert_close(loss_of_spoilt, loss)
    torch.testing.assert_close(torch.autograd.grad(loss_of_spoilt, spoilt.logprob)[0], gradient)
    assert (gradient[~batch.mask] == 0).all()
    assert all(x.isfinite() for pair in metrics.values() for x in pair)


# A loss with a stopped gradient is not the integral of its gradient: those are checked on their own.
SMOOTH = [c for c in CASES if c.kind not in ("cispo", "a-lol") and getattr(c, "form", None) != "token"]


@pytest.mark.parametrize("component", SMOOTH, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_equal_finite_differences(component, seed, batch_of):
    objective = component.build()
    batch = random_batch(batch_of, objective, [[1, 1, 1, 0], [0, 1, 1, 1]], seed)

    def loss(logprob, entropy, value):
        return objective(replace(batch, logprob=logprob, entropy=entropy, value=value))[0]

    inputs = [x.detach().clone().requires_grad_() for x in (batch.logprob, batch.entropy, batch.value)]
    # steps of 1e-6 against values that are random: none of them stands that close to a kink
    assert torch.autograd.gradcheck(loss, inputs, eps=1e-6, atol=1e-8)


def test_cispos_gradient_equals_finite_differences_at_a_fixed_weight():
    logprob = torch.tensor([[-1.0, -0.5, -2.0]]).double().requires_grad_()
    ratio, advantage = torch.tensor([[0.3, 1.0, 9.0]]).double(), torch.tensor([[1.0, -2.0, 0.5]]).double()
    assert torch.autograd.gradcheck(lambda x: clipped_weight_loss(x, ratio, advantage, 0.5, 4.0), [logprob])


def test_a_policy_that_ran_away_gives_finite_gradients(batch_of):
    # exp(1000) is infinite, and the branch of the minimum that was not taken sends back 0 * infinity
    for component in CASES:
        gone, here = [[-1000.0], [-0.1]], [[-0.1], [-1000.0]]
        batch = batch_of(
            [[1], [1]],
            component.aggregate,
            component.constant,
            logprob=here,
            old_logprob=gone,
            behaviour_logprob=here,
            reference_logprob=gone,
            advantage=[[1.0], [-1.0]],
            **{name: [[0.0], [0.0]] for name in ("entropy", "value", "old_value", "value_target")},
        )
        loss, _ = component.build()(batch)
        (gradient,) = torch.autograd.grad(loss, batch.logprob)
        assert loss.isfinite(), repr(component)
        assert gradient.isfinite().all(), repr(component)
