import pytest
import torch
from test_task_relative import forest

from lyceum.core.settings import Composition
from lyceum.credit.role_baseline import RoleBaseline


def test_each_role_is_compared_with_what_it_earned_in_the_steps_before():
    # Proposers earn -1 and 1/2, solvers 1, 0, 0, 0. With decay 1/2: -1/2, then 0; and 1/2, 1/4, 1/8, 1/16.
    credit = RoleBaseline(decay=0.5).build()
    rewards = torch.tensor([-1.0, 1, 0, 0.5, 0, 0])
    assert torch.equal(credit(forest()).advantage[:, 1], rewards)
    credit.observe(forest(), {})
    assert credit.mean == {"proposer": 0.0, "solver": pytest.approx(1 / 16)}
    after = credit(forest())
    torch.testing.assert_close(after.advantage[:, 1], rewards - torch.tensor([0, 1, 1, 0, 1, 1]) / 16)
    assert after.metrics["baseline/apart"] == pytest.approx(1 / 16)
    again = RoleBaseline(decay=0.5).build()
    again.load_state_dict(credit.state_dict())
    assert torch.equal(again(forest()).advantage, after.advantage)


def test_it_needs_roles():
    (line,) = RoleBaseline().check(Composition())
    assert "in a stage without roles" in line
