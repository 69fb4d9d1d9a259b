import math
from dataclasses import replace

import pytest
import torch
from graded_trees import graded
from pydantic import ValidationError

from lyceum.core.forest import build_forest
from lyceum.core.types import Credited
from lyceum.objective.ppo_clip import PPOClip
from lyceum.papers.epo.objective_epo import EPO, outside, smoothing_weight


def planned(objective):
    forest = build_forest([graded(1.0, 0.0)])
    return objective.plan(forest, Credited(torch.ones(forest.rows().index.shape)), [torch.arange(2)])


def test_the_band_is_around_the_mean_entropy_of_the_steps_before():
    objective = EPO(band_low=0.5, band_high=2.0, phase_steps=10).build()
    assert planned(objective).thresholds == {}, "the first step has none"
    for entropy in (1.0, 2.0, 3.0):
        objective.observe({"entropy": entropy})
    # Mean 2, weight after 3 of 10 steps: 1 - 0.2 (1 - exp(-2 * 0.6)).
    weight = 1 - 0.2 * (1 - math.exp(-1.2))
    assert planned(objective).thresholds == pytest.approx({"low": 1.0, "high": 4.0, "weight": weight})
    window = EPO(band_low=0.5, window=2).build()
    window.load_state_dict(objective.state_dict())
    assert planned(window).thresholds["low"] == pytest.approx(1.25)


def test_the_weight_falls_slowly_and_then_fast():
    assert smoothing_weight(0.0) == 1
    assert smoothing_weight(0.5) == pytest.approx(0.8 + 0.2 * math.exp(-2))
    assert smoothing_weight(0.75) == pytest.approx(0.8 * math.exp(-1.5))
    assert smoothing_weight(1.0) == smoothing_weight(9.0) == pytest.approx(0.8 * math.exp(-3))


def test_only_tokens_outside_the_band_are_pulled_back_into_it(batch_of):
    entropy = torch.tensor([[0.2, 1.0, 3.0]]).double().requires_grad_()
    torch.testing.assert_close(outside(entropy, 0.5, 2.0), torch.tensor([[0.3, 0.0, 1.0]]).double())
    batch = replace(batch_of([[1, 1, 1]]), entropy=entropy)
    objective = EPO(entropy_coefficient=0.2, penalty=0.5).build()
    plain, _ = objective(batch)
    expected, _ = PPOClip(entropy_coefficient=0.2).build()(batch)
    torch.testing.assert_close(plain, expected)
    loss, metrics = objective(replace(batch, thresholds={"low": 0.5, "high": 2.0, "weight": 0.8}))
    # 0.2 * 0.8 * 0.5 * (0.3 + 1.0) / 3
    assert (loss - plain).item() == pytest.approx(0.08 * 1.3 / 3)
    (gradient,) = torch.autograd.grad(loss - plain, entropy)
    torch.testing.assert_close(gradient, torch.tensor([[-0.08, 0, 0.08]]).double() / 3)
    assert metrics["epo/outside"] == (2, 3)


def test_a_loss_changes_no_state_and_a_resumed_objective_goes_on_alike():
    objective, resumed = EPO().build(), EPO().build()
    objective.observe({"entropy": 0.5})
    objective.observe({})  # a step without a trained token
    state = objective.state_dict()
    assert state == {"entropies": [0.5], "steps": 2}
    planned(objective)
    assert objective.state_dict() == state
    resumed.load_state_dict(state)
    assert planned(resumed).thresholds == planned(objective).thresholds
    with pytest.raises(ValueError, match="lacks"):
        resumed.load_state_dict({"steps": 2})


def test_settings_that_would_do_nothing_are_refused():
    with pytest.raises(ValidationError, match=r"band_low: got 2\.5, but band_high is 2"):
        EPO(band_low=2.5)
    with pytest.raises(ValidationError, match="entropy_coefficient: got 0"):
        EPO(entropy_coefficient=0)
