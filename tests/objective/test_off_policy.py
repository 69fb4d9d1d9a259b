"""Losses on a teacher's tokens, and on those that the policy wrote under another prompt than the row's."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.types import Origin
from lyceum.objective._importance import ImportanceCorrection
from lyceum.objective.base import aggregate_weights
from lyceum.objective.luffy import Luffy, shaped_probability
from lyceum.objective.ppo_clip import PPOClip
from lyceum.papers.guide_grpo.objective_guide_grpo import GuideLoss, shaped_weight
from lyceum.papers.rl_plus.objective_rl_plus import RLPlus, exploration_weight, multiple_importance_ratio
from lyceum.recipe.schema import load_recipe

OWN, TEACHER = int(Origin.POLICY), int(Origin.TEACHER)


def log(*p):
    return torch.tensor([p], dtype=torch.float64).log()


def test_multiple_importance_sampling_by_hand():
    # p_old 1/2: omega (1/2 + 1)/2 = 3/4; 2 * 1/2 / (3/4 + 1/2) = 4/5, and with p moved to 3/4: 6/5.
    # p_old 1: omega 1, ratio 1. p_old 1/5: omega 3/5, 2 * 1/5 / (4/5) = 1/2. Plain importance sampling with
    # omega for the denominator would give 2/3 at p = 1/2.
    ratio = multiple_importance_ratio(log(0.5, 0.75, 1.0, 0.2), log(0.5, 0.5, 1.0, 0.2))
    torch.testing.assert_close(ratio, torch.tensor([[0.8, 1.2, 1.0, 0.5]], dtype=torch.float64))


@given(st.floats(-60, 0), st.floats(-60, 0))
def test_the_ratio_of_a_demonstration_cannot_run_away(logprob, old_logprob):
    ratio = multiple_importance_ratio(torch.tensor(logprob).double(), torch.tensor(old_logprob).double())
    assert 0 <= ratio <= 4


def test_exploration_is_more_for_what_is_unlikely_and_has_no_gradient():
    logprob = log(0.75, 0.99, 1.0).requires_grad_()
    weight = exploration_weight(logprob, 0.5)
    torch.testing.assert_close(weight, torch.tensor([[0.5, 0.1, 0.0]], dtype=torch.float64))
    assert not weight.requires_grad


def mixed(batch_of):
    """A row of the policy's and one of a teacher's, each of one token; p 1/2, p_old 1/4 where the teacher wrote."""
    return batch_of(
        [[1], [1]],
        origin=torch.tensor([[OWN], [TEACHER]]),
        logprob=[[math.log(0.5)], [math.log(0.5)]],
        old_logprob=[[math.log(0.25)], [math.log(0.25)]],
        behaviour_logprob=[[math.log(0.25)], [math.nan]],
        advantage=[[1.0], [1.0]],
    )


def test_rl_plus_clips_its_own_tokens_and_not_the_teachers(batch_of):
    batch = mixed(batch_of)
    loss, metrics = RLPlus().build()(batch)
    loss.backward()
    # Own: ratio 2, cut at 1.2, no gradient. Teacher: omega 5/8, 2 * 1/2 / (1/4 + 5/8) = 8/7, times sqrt(1 - 1/2).
    external = 8 / 7 * math.sqrt(0.5)
    assert loss.item() == pytest.approx((-1.2 - external) / 2)
    assert batch.logprob.grad.squeeze(1).tolist() == pytest.approx([0, -external / 2])
    assert metrics["external/weight"][0].item() / metrics["external/weight"][1].item() == pytest.approx(external)


def test_luffy_shapes_the_teachers_probability(batch_of):
    batch = mixed(batch_of)
    loss, _ = Luffy().build()(batch)
    loss.backward()
    # f(1/2) = (1/2) / (3/5) = 5/6; df/dlog p = 0.1 * 0.5 / 0.36 = 5/36.
    assert loss.item() == pytest.approx((-1.2 - 5 / 6) / 2)
    assert batch.logprob.grad.squeeze(1).tolist() == pytest.approx([0, -5 / 36 / 2])


def test_shaping_moves_the_gradient_to_unlikely_tokens():
    logprob = log(0.01, 0.1, 0.9).requires_grad_()
    shaped_probability(logprob, 0.1).sum().backward()
    small, middle, large = logprob.grad.squeeze(0).tolist()
    # gamma p / (p + gamma)^2: 0.001/0.0121, 0.01/0.04, 0.09/1. Unshaped it would be p itself: 0.01, 0.1, 0.9.
    assert (small, middle, large) == pytest.approx((0.001 / 0.0121, 0.25, 0.09))


@pytest.mark.parametrize("objective", [RLPlus(), Luffy()], ids=lambda o: o.kind)
def test_the_policys_own_rows_are_plain_ppo(objective, batch_of):
    batch = batch_of([[1, 1]], advantage=[[1.0, -2.0]], logprob=[[-1.5, -0.5]])
    assert objective.build()(batch)[0].item() == PPOClip().build()(batch)[0].item()
    assert set(objective.build().origins) == {Origin.POLICY, Origin.TEACHER}


def test_correcting_the_engine_leaves_the_teachers_tokens_alone(batch_of):
    # The teacher's behaviour log-probability is nan: reading it would refuse the batch, or make the loss nan.
    correction = ImportanceCorrection(mode="truncate", high=1.5)
    batch = replace(mixed(batch_of), behaviour_logprob=torch.tensor([[math.log(0.125)], [math.nan]]))
    loss, _ = RLPlus(importance=correction).build()(batch)
    # Own token: old / behaviour = 2, cut to 1.5.
    assert loss.item() == pytest.approx((-1.2 * 1.5 - 8 / 7 * math.sqrt(0.5)) / 2)


# Guide -------------------------------------------------------------------------------------------------------------


def guided(batch_of):
    """A token of the unguided policy, which is twice as likely now, and one that was twice as likely under a hint."""
    batch = batch_of(
        [[1], [1]],
        logprob=[[math.log(0.5)], [math.log(0.25)]],
        old_logprob=[[math.log(0.25)], [math.log(0.25)]],
        behaviour_logprob=[[math.log(0.25)], [math.log(0.5)]],
        advantage=[[1.0], [1.0]],
    )
    return replace(batch, grafted=torch.tensor([[False], [True]]))


def test_a_guided_token_is_weighed_against_the_hinted_policy(batch_of):
    batch = guided(batch_of)
    loss, metrics = GuideLoss(shaping="none").build()(batch)
    loss.backward()
    # Unguided: ratio 2, cut at 1.2. Guided: 1/4 over 1/2 under the hint, 0.5; against p_old it would be 1. Below the
    # range of 0.8 and yet with its whole gradient.
    assert loss.item() == pytest.approx((-1.2 - 0.5) / 2)
    assert batch.logprob.grad.squeeze(1).tolist() == pytest.approx([0, -0.25])
    assert metrics["guided/ratio"][0].item() == pytest.approx(0.5)


def test_a_guided_ratio_above_the_range_keeps_its_gradient(batch_of):
    batch = guided(batch_of)
    batch = replace(batch, behaviour_logprob=torch.tensor([[math.log(0.25)], [math.log(0.05)]]))
    GuideLoss(shaping="none").build()(batch)[0].backward()
    assert batch.logprob.grad[1].item() == pytest.approx(-5 / 2)


def test_the_percentile_is_of_the_rows_own_guided_weights():
    ratio = torch.tensor([[1.0, 2, 3, 100], [10, 10, 10, 10], [1, 1, 1, 1]], requires_grad=True)
    mask = torch.tensor([[True, True, True, False], [True, True, True, True], [False, False, False, False]])
    weight = shaped_weight(ratio, mask, "percentile", 0.5)
    # Medians 2 (the 100 is not guided) and 10. Over all rows together it would be 10 for both.
    torch.testing.assert_close(weight[0, :3], torch.tensor([1 / 3, 1 / 2, 3 / 5]))
    torch.testing.assert_close(weight[1], torch.full((4,), 0.5))
    assert weight.isfinite().all()
    weight[0, 1].backward()
    # d/dw w / (w + 2) at 2 is 2/16; with a gradient through the median (which is w itself) it would be 0.
    assert ratio.grad[0, 1].item() == pytest.approx(2 / 16)


def test_the_recipes_loss_is_a_mean_over_rows_whatever_their_lengths(batch_of):
    # Nothing has moved yet: every ratio is 1, every loss -advantage. The authors take a mean over each row's tokens and
    # then over rows: -(1 - 2) / 2. A mean over the four tokens would be -(1 - 6) / 4 = 1.25.
    objective = load_recipe("guide-grpo").stages[0].objective
    batch = batch_of([[1, 0, 0], [1, 1, 1]], advantage=[[1.0] * 3, [-2.0] * 3])
    batch = replace(batch, weight=aggregate_weights(batch.mask, objective.aggregate))
    assert objective.build()(batch)[0].item() == pytest.approx(0.5)


def test_other_shapes_by_hand():
    ratio, mask = torch.tensor([[4.0]]), torch.ones(1, 1, dtype=torch.bool)
    assert shaped_weight(ratio, mask, "constant", 1.0).item() == pytest.approx(0.8)
    assert shaped_weight(ratio, mask, "power", 0.5).item() == pytest.approx(2.0)
    with pytest.raises(ValueError, match="percentile"):
        GuideLoss(shaping="percentile", shaping_value=90)


def test_without_guided_tokens_it_is_plain_ppo(batch_of):
    batch = batch_of([[1, 1]], advantage=[[1.0, -2.0]], logprob=[[-1.5, -0.5]])
    assert GuideLoss().build()(batch)[0].item() == PPOClip().build()(batch)[0].item()


def test_correcting_the_engine_does_not_correct_a_guided_token_twice(batch_of):
    correction = ImportanceCorrection(mode="truncate", high=10.0)
    loss, _ = GuideLoss(shaping="none", importance=correction).build()(guided(batch_of))
    # old / behaviour of the guided token is 1/2: corrected twice it would count 0.25.
    assert loss.item() == pytest.approx((-1.2 - 0.5) / 2)
