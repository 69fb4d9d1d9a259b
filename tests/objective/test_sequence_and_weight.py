import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.types import Origin
from lyceum.objective.ppo_clip import PPOClip
from lyceum.objective.reinforce import ReinforceLoss
from lyceum.objective.sft import SFT
from lyceum.papers.cispo.objective_cispo import CISPO
from lyceum.papers.gspo.objective_gspo import GSPO, sequence_ratio

WIDE = {"clip_low": 1.0, "clip_high": 9.0}


def grad(objective, batch):
    (gradient,) = torch.autograd.grad(objective.build()(batch)[0], batch.logprob)
    return gradient


def test_a_rows_ratio_is_the_geometric_mean_over_its_tokens():
    # 4 and 1 (and a 9 that is not trained): sqrt(4) = 2; the product would be 4, the mean 2.5
    ratio = torch.tensor([[4.0, 1, 9], [1 / 8, 1, 1]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    expected = torch.tensor([[2.0] * 3, [0.5] * 3])
    torch.testing.assert_close(sequence_ratio(ratio.log(), torch.zeros(2, 3), mask), expected)


def test_gspo_by_hand(batch_of):
    # row 1: ratios 4, 1: s = 2, A = 1, clipped at 1.5: -1.5. Row 2: one token of 1/2, A = -1, clipped at 0.75: 0.75.
    # Rows count alike: (-1.5 + 0.75) / 2. By token (two to one) it would be (-3 + 0.75) / 3.
    batch = batch_of(
        [[1, 1], [1, 0]],
        "sequence",
        logprob=torch.tensor([[4, 1], [1 / 2, 1]]).log() - 3,
        old_logprob=[[-3.0, -3.0]] * 2,
        advantage=[[1.0, 1.0], [-1.0, 0.0]],
    )
    loss, metrics = GSPO(clip_low=0.25, clip_high=0.5).build()(batch)
    torch.testing.assert_close(loss.item(), (-1.5 + 0.75) / 2)
    torch.testing.assert_close((metrics["clip/high"][0] / metrics["clip/high"][1]).item(), 2 / 3)


def test_gspo_spreads_a_rows_gradient_over_its_tokens_and_the_token_form_does_not(batch_of):
    # s = 2, weights 1/2 each. Sequence: d/dlogprob_t of -s (A_1 + A_2) / 2 = -s (A_1 + A_2) / 4 = -2 * 4 / 4 = -2 each.
    # Token: -s A_t / 2 = -1, -3: each token's own advantage.
    columns = {"logprob": torch.tensor([[4.0, 1]]).log() - 3, "old_logprob": [[-3.0, -3.0]], "advantage": [[1.0, 3.0]]}
    batch = batch_of([[1, 1]], "sequence", **columns)
    torch.testing.assert_close(grad(GSPO(**WIDE), batch), torch.tensor([[-2.0, -2]]).double())
    torch.testing.assert_close(grad(GSPO(form="token", **WIDE), batch), torch.tensor([[-1.0, -3]]).double())
    whole, token = (GSPO(form=form, **WIDE).build()(batch)[0] for form in ("sequence", "token"))
    torch.testing.assert_close(whole, token)


log_ratios = st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=3)


@given(log_ratios, st.floats(-2, 2), st.booleans())
def test_both_gspo_forms_agree_where_a_row_has_one_advantage(batch_of, log_ratio, advantage, wide):
    clip = WIDE if wide else {"clip_low": 0.05, "clip_high": 0.1}
    batch = batch_of([[1, 1, 1]], "sequence", logprob=[[x - 1 for x in log_ratio]], advantage=[[advantage] * 3])
    torch.testing.assert_close(grad(GSPO(**clip), batch), grad(GSPO(form="token", **clip), batch))


@given(log_ratios, st.lists(st.floats(-2, 2), min_size=3, max_size=3))
def test_on_rows_of_one_token_gspo_is_ppo_clip(batch_of, log_ratio, advantage):
    columns = {"logprob": [[x - 1] for x in log_ratio], "advantage": [[a] for a in advantage]}
    batch = batch_of([[1], [1], [1]], "sequence", **columns)
    clip = {"clip_low": 0.2, "clip_high": 0.28}
    for form in ("sequence", "token"):
        torch.testing.assert_close(grad(GSPO(form=form, **clip), batch), grad(PPOClip(**clip), batch))
        torch.testing.assert_close(GSPO(form=form, **clip).build()(batch)[0], PPOClip(**clip).build()(batch)[0])


def test_cispo_clips_the_weight_and_keeps_the_gradient(batch_of):
    # ratios 8, 1/2, 1/8 with the weight in [1/4, 3]: 3, 1/2, 1/4; gradient -w A / 3, where ppo-clip's is 0 for the 8
    ratio = torch.tensor([[8, 1 / 2, 1 / 8]])
    batch = batch_of([[1, 1, 1]], logprob=ratio.log() - 3, old_logprob=[[-3.0] * 3], advantage=[[1.0, 1.0, -2.0]])
    objective = CISPO(clip_low=0.75, clip_high=2.0)
    torch.testing.assert_close(grad(objective, batch), torch.tensor([[-3.0, -0.5, 0.5]]).double() / 3)
    assert grad(PPOClip(clip_low=0.75, clip_high=2.0), batch)[0, 0] == 0
    loss, metrics = objective.build()(batch)
    value = -(3 * (math.log(8) - 3) + 0.5 * (math.log(0.5) - 3) - 0.25 * 2 * (math.log(1 / 8) - 3)) / 3
    torch.testing.assert_close(loss.item(), value)
    assert [(metrics[f"clip/{side}"][0] / 3).item() for side in ("low", "high")] == pytest.approx([1 / 3, 1 / 3])


def test_on_policy_every_policy_loss_has_reinforces_gradient(batch_of):
    batch = batch_of([[1, 1], [1, 0]], advantage=[[2.0, 2.0], [-1.0, 0.0]])
    expected = torch.tensor([[-2.0, -2], [1, 0]]).double() / 3
    for objective in (ReinforceLoss(), PPOClip(), CISPO(), GSPO(aggregate="token", form="token")):
        torch.testing.assert_close(grad(objective, batch), expected)


def test_reinforce_is_log_probability_times_advantage(batch_of):
    # -(2 * -1 + -3 * -4) / 2
    batch = batch_of([[1, 1]], logprob=[[-1.0, -4.0]], advantage=[[2.0, -3.0]])
    torch.testing.assert_close(ReinforceLoss().build()(batch)[0].item(), -5.0)


def test_sft_is_the_mean_cross_entropy_whatever_the_advantage(batch_of):
    batch = batch_of([[1, 1, 0]], logprob=[[-1.0, -4.0, -100.0]], advantage=[[0.0, 0.0, 0.0]])
    objective = SFT().build()
    loss, metrics = objective(batch)
    assert loss.item() == 2.5
    assert metrics["nll"] == (5.0, 2.0)
    assert not objective.skips  # a learner that skipped those rows would learn nothing
    assert objective.origins == (Origin.TEACHER,)
