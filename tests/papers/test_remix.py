"""ReMix: the clip range moves with the ratio at the start of the step, and two anchors share a penalty."""

import math

import pytest
import torch

from lyceum.papers.remix.objective_mix_policy import KLConvex, MixPolicy
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def test_the_references_share_falls_in_steps_to_its_least():
    # The paper's numbers: max(1 - 0.1 ceil(max(t - 50, 0) / 10), 0.5).
    found = [KLConvex().share(t) for t in (0, 50, 51, 60, 61, 100, 101, 500)]
    assert found == pytest.approx([1, 1, 0.9, 0.9, 0.8, 0.5, 0.5, 0.5])


def rows(batch_of, ages, logprob):
    """Tokens sampled with probability 1/4, of probability 1/2 as the step began."""
    log = math.log
    return batch_of(
        [[1]] * len(ages),
        logprob=[[log(p)] for p in logprob],
        old_logprob=[[log(0.5)]] * len(ages),
        behaviour_logprob=[[log(0.25)]] * len(ages),
        reference_logprob=[[log(0.5)]] * len(ages),
        age=torch.tensor([[float(age)] for age in ages]).double(),
    )


def test_a_recorded_token_is_clipped_around_its_ratio_of_then(batch_of):
    # Recorded: ratio 0.5 / 0.25 = 2 as the step begins, so the range is 1.8 to 2.2, and 0.6 / 0.25 = 2.4 is outside.
    # Around 1 both would be clipped. Of the step's own the first ratio is 1.
    objective = MixPolicy(kl_convex=KLConvex(coefficient=0)).build()
    batch = rows(batch_of, [1, 1, 0], [0.5, 0.6, 0.5])
    loss, metrics = objective(batch)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    assert gradient.squeeze(1).tolist() == pytest.approx([-2 / 3, 0, -1 / 3])
    assert loss.item() == pytest.approx(-(2 + 2.2 + 1) / 3)
    assert metrics["clip/high"][0] == 1
    assert metrics["mix/start_ratio"][0] / metrics["mix/start_ratio"][1] == pytest.approx(2)


def test_without_recorded_tokens_it_is_ppo(batch_of):
    batch = batch_of([[1, 1]], logprob=[[math.log(0.6), math.log(0.5)]], old_logprob=[[math.log(0.4)] * 2])
    loss, _ = MixPolicy(kl_convex=KLConvex(coefficient=0)).build()(batch)
    assert loss.item() == pytest.approx(-(1.2 + 1.2) / 2)  # ratios 1.5 and 1.25, both clipped


def test_both_anchors_hold_it(batch_of):
    # p 1/2 now, 1/4 as the step began, 1/8 in the reference; k3 = exp(x) - 1 - x with x = log(q / p).
    batch = batch_of(
        [[1]],
        logprob=[[math.log(0.5)]],
        old_logprob=[[math.log(0.25)]],
        reference_logprob=[[math.log(0.125)]],
        advantage=[[0.0]],
    )
    objective = MixPolicy(kl_convex=KLConvex(coefficient=1.0, hold_steps=0, fall=0.25, fall_steps=1)).build()
    to_reference, to_old = 0.25 - 1 - math.log(0.25), 0.5 - 1 - math.log(0.5)
    first, _ = objective(batch)
    assert first.item() == pytest.approx(to_reference)
    objective.observe({})
    later, metrics = objective(batch)
    assert later.item() == pytest.approx(0.75 * to_reference + 0.25 * to_old)
    assert metrics["kl/reference_share"][0] == 0.75
    back = MixPolicy(kl_convex=objective.settings.kl_convex).build()
    back.load_state_dict(objective.state_dict())
    assert back(batch)[0].item() == later.item()


def test_it_reads_both_probabilities_of_a_recorded_token():
    with pytest.raises(RecipeError, match=r"replay\.ratio: got 'behaviour', but objective\.kind 'mix-policy'"):
        load_recipe("grpo", ["replay=own", "objective=mix-policy"])
