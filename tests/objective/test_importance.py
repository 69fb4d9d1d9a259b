import math

import pytest
import torch
from pydantic import ValidationError

from lyceum.objective._importance import ImportanceCorrection, importance_weight
from lyceum.objective.reinforce import ReinforceLoss

# the learner's probability over the engine's: 4, 1/4 | 2, 1/2, and a third token that is not trained
BEHAVIOUR = torch.full((2, 3), -3.0)
OLD = BEHAVIOUR + torch.tensor([[4, 1 / 4, 9], [2, 1 / 2, 9]]).log()
MASK = torch.tensor([[True, True, False]] * 2)


def weights(level, mode, low, high, old=OLD):
    return importance_weight(old, BEHAVIOUR, MASK, level, mode, low, high)


def test_token_level():
    torch.testing.assert_close(weights("token", "truncate", 0, 3), torch.tensor([[3, 1 / 4, 1], [2, 1 / 2, 1]]))
    torch.testing.assert_close(weights("token", "truncate", 0.5, 3), torch.tensor([[3, 1 / 2, 1], [2, 1 / 2, 1]]))
    # dropped on both sides, and what is kept keeps its weight
    torch.testing.assert_close(weights("token", "mask", 0.4, 3), torch.tensor([[0, 0, 1], [2, 1 / 2, 1]]))


def test_sequence_level_is_the_product_over_trained_tokens():
    # 4 * 1/4 * 1/2 would be with the third; here the first row is 1 and the second, with 2 * 4, is 8
    old = OLD + torch.tensor([[0, 0, 0], [0, 8.0, 0]]).clamp(min=1).log()
    torch.testing.assert_close(weights("sequence", "truncate", 0, 3, old), torch.tensor([[1.0, 1, 1], [3, 3, 1]]))
    torch.testing.assert_close(weights("sequence", "mask", 0, 3, old), torch.tensor([[1.0, 1, 1], [0, 0, 1]]))


def test_weights_have_no_gradient():
    assert not weights("token", "truncate", 0, 3, OLD.clone().requires_grad_()).requires_grad


def test_a_trained_token_that_the_policy_did_not_draw_is_an_error():
    behaviour = BEHAVIOUR.clone()
    behaviour[0, 2] = float("nan")  # outside the mask: nobody reads it
    importance_weight(OLD, behaviour, MASK, "token", "mask", 0, 3)
    behaviour[0, 1] = float("nan")
    with pytest.raises(ValueError, match="behaviour_logprob is nan on a trained token"):
        importance_weight(OLD, behaviour, MASK, "token", "mask", 0, 3)


def test_bounds_are_ordered():
    with pytest.raises(ValidationError, match=r"low: got 3\.0; allowed: less than high, which is 2\.0"):
        ImportanceCorrection(low=3.0)


def test_it_multiplies_the_policy_loss_alone(batch_of):
    # -A logprob = 1, 1; weights 3 (of 4) and 1/4; the KL's 0.5 * k2 = 0.5 * 2 is not corrected
    behaviour = torch.tensor([[-1.0, -1.0]]) - torch.tensor([[4, 1 / 4]]).log()
    batch = batch_of([[1, 1]], behaviour_logprob=behaviour, reference_logprob=[[-3.0, -3.0]])
    correction = {"mode": "truncate", "high": 3.0}
    objective = ReinforceLoss(importance=correction, kl={"coefficient": 0.5, "estimator": "k2"}).build()
    loss, metrics = objective(batch)
    torch.testing.assert_close(loss.item(), (3 + 1 + 1 / 4 + 1) / 2)
    total, count = metrics["importance/weight"]
    torch.testing.assert_close((total / count).item(), 3.25 / 2)
    total, count = metrics["importance/mismatch"]  # |log 4| and |log 1/4|, whatever the bounds are
    torch.testing.assert_close((total / count).item(), math.log(4))
    assert "old_logprob" in objective.needs


def test_the_mismatch_is_logged_without_a_correction_and_changes_no_loss(batch_of):
    # |-1 + 1.5| and |-1 + 1.1|: 0.3 in the mean; the third token has no sampled log-probability.
    behaviour = torch.tensor([[-1.5, -1.1, float("nan")]])
    batch = batch_of([[1, 1, 1]], behaviour_logprob=behaviour)
    objective = ReinforceLoss().build()
    loss, metrics = objective(batch)
    total, count = metrics["importance/mismatch"]
    torch.testing.assert_close(((total / count).item(), count.item()), (0.3, 2.0))
    assert "old_logprob" not in objective.needs
    torch.testing.assert_close(loss, objective(batch_of([[1, 1, 1]]))[0])
    assert "importance/weight" not in metrics
