import math

import pytest
import torch

from lyceum.papers.mdpo.objective_mdpo import MDPO, kl_from_old


def test_the_sampled_divergence_is_the_divergence():
    # Of two words, 1/2 each under the old policy, 3/4 and 1/4 under the new one: ratios 3/2 and 1/2, and
    # KL(new || old) = 3/4 log(3/2) + 1/4 log(1/2). KL(old || new) would be log 2 - log(3) / 2.
    old, new = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.75, 0.25]])
    estimate = kl_from_old(new.log(), old.log())
    assert (estimate > 0).all()
    torch.testing.assert_close((old * estimate).sum().item(), 0.75 * math.log(1.5) + 0.25 * math.log(0.5))


def test_the_loss_is_the_ratio_and_the_distance_without_a_clip(batch_of):
    # Ratio 2, A = 1, t = 1/2: -2 + 2 (2 log 2 - 1); slope 2 (2 log 2 - 1): PPO's would be 0 past the clip. At ratio 1
    # the distance has no slope: -1.
    batch = batch_of([[1], [1]], logprob=[[math.log(2) - 1], [-1.0]])
    loss, metrics = MDPO(step_size=0.5).build()(batch)
    assert loss.item() == pytest.approx((-2 + 2 * (2 * math.log(2) - 1) - 1) / 2)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    torch.testing.assert_close(gradient, torch.tensor([[2 * (2 * math.log(2) - 1)], [-1.0]]).double() / 2)
    assert float(metrics["kl/mdpo"][0]) == pytest.approx(2 * math.log(2) - 1)


def test_the_step_size_falls_with_the_steps_and_resumes(batch_of):
    # 2 (1 - k / 4): 2, 1.5, 1, 0.5, and 0.5 from then on, never 0.
    settings = MDPO(step_size=2.0, fall_steps=4)
    assert [settings.at(k) for k in (0, 1, 2, 3, 4, 99)] == [2, 1.5, 1, 0.5, 0.5, 0.5]
    assert MDPO(step_size=2.0).at(99) == 2
    objective, resumed = settings.build(), settings.build()
    objective.observe({})
    resumed.load_state_dict(objective.state_dict())
    assert float(resumed(batch_of([[1]]))[1]["mdpo/step_size"][0]) == 1.5


def test_rows_without_advantage_are_held_too():
    assert not MDPO().build().skips
