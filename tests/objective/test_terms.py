import math

import pytest
import torch

from lyceum.core.component import kinds
from lyceum.objective.base import Terms, value_loss
from lyceum.objective.reinforce import ReinforceLoss

POLICY_KINDS = sorted(
    kind
    for kind, settings in kinds("objective").items()
    # epo's entropy bonus and the penalties of mix-policy and mdpo are on; a-lol reads the reference, clip-cov's plan
    # the old policy; the plans of ppo-and-sft and amft say which rows are imitated.
    if issubclass(settings, Terms)
    and kind not in ("epo", "mix-policy", "mdpo", "a-lol", "clip-cov", "ppo-and-sft", "amft")
)
LOG2 = math.log(2)


def still(batch_of, **columns):
    """Two tokens without advantage, so that the loss is the terms alone; weights 1/2."""
    return batch_of([[1, 1]], advantage=[[0.0, 0.0]], **columns)


def test_kl_entropy_and_value_terms_by_hand(batch_of):
    kl = still(batch_of, reference_logprob=[[-1 - LOG2, -1.0]])  # k1: log 2 and 0
    loss, metrics = ReinforceLoss(kl={"coefficient": 0.5, "estimator": "k1"}).build()(kl)
    torch.testing.assert_close(loss.item(), 0.5 * LOG2 / 2)
    # the metric is k3, whatever the loss takes: exp(-log 2) - 1 + log 2, on one of two
    torch.testing.assert_close((metrics["kl/reference"][0] / 2).item(), (LOG2 - 0.5) / 2)

    # Against the slow average its column is read, whatever the reference says.
    away = torch.tensor([[-1 - LOG2, -1.0]], dtype=torch.float64)
    average = still(batch_of, reference_logprob=[[-9.0, -9.0]], average_logprob=away)
    against = ReinforceLoss(kl={"coefficient": 0.5, "estimator": "k1", "against": "average"}).build()
    assert against.columns == {"average_logprob"}
    loss, metrics = against(average)
    torch.testing.assert_close(loss.item(), 0.5 * LOG2 / 2)
    torch.testing.assert_close((metrics["kl/average"][0] / 2).item(), (LOG2 - 0.5) / 2)

    entropy = still(batch_of, entropy=[[1.0, 3.0]])
    loss, metrics = ReinforceLoss(entropy_coefficient=0.1).build()(entropy)
    torch.testing.assert_close(loss.item(), -0.1 * 2)  # more entropy, less loss
    assert metrics["entropy"] == (4.0, 2.0)

    value = still(batch_of, value=[[1.0, 0.0]], value_target=[[3.0, 1.0]])  # 4/2 and 1/2
    loss, metrics = ReinforceLoss(value_coefficient=0.5).build()(value)
    torch.testing.assert_close(loss.item(), 0.5 * 2.5 / 2)
    assert metrics["value_loss"] == (2.5, 2.0)


def test_a_clipped_value_takes_the_worse_of_the_two():
    # target 0, old 1, clip 0.5. Moved to 0.2: clipped at 0.5, 0.125 > 0.02. Moved to 2: its own 2 > 1.125.
    value, old = torch.tensor([[0.2, 2.0]]), torch.tensor([[1.0, 1.0]])
    loss = value_loss(value, torch.zeros(1, 2), old, clip=0.5)
    torch.testing.assert_close(loss, torch.tensor([[0.125, 2.0]]))
    with pytest.raises(ValueError, match="needs old_value"):
        value_loss(value, torch.zeros(1, 2), None, clip=0.5)


@pytest.mark.parametrize("kind", POLICY_KINDS)
def test_only_what_is_used_is_asked_for(kind):
    settings = kinds("objective")[kind]
    plain = settings().build()
    assert plain.needs <= {"old_logprob"}
    assert plain.skips == (not plain.reductions)  # they pull on rows without an advantage
    for term, setting, columns, needed in [
        ("kl", {"coefficient": 0.1}, {"reference_logprob"}, set()),
        ("entropy_coefficient", -0.1, set(), {"entropy"}),
        ("value_coefficient", 0.5, {"old_value"}, {"value"}),
    ]:
        objective = settings(**{term: setting}).build()
        assert (objective.columns, objective.needs) == (columns, plain.needs | needed)
        assert not objective.skips  # the term pulls on rows without an advantage too


@pytest.mark.parametrize("kind", POLICY_KINDS)
def test_rows_without_advantage_add_nothing_where_the_learner_may_skip_them(kind, batch_of):
    objective = kinds("objective")[kind]().build()
    if not objective.skips:
        return
    batch = batch_of([[1, 1]], logprob=[[-0.3, -2.0]], advantage=[[0.0, 0.0]])
    loss, _ = objective(batch)
    loss.backward()
    assert loss.item() == 0
    assert (batch.logprob.grad == 0).all()


def test_a_missing_column_is_named(batch_of):
    batch = still(batch_of)
    for settings, column in {
        ReinforceLoss(kl={"coefficient": 0.1}): "reference_logprob",
        ReinforceLoss(entropy_coefficient=0.1): "entropy",
        ReinforceLoss(value_coefficient=0.1): "value",
    }.items():
        with pytest.raises(ValueError, match=f"the batch has no {column}"):
            settings.build()(batch)
