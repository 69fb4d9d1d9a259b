import torch
from role_forest import forest

from lyceum.core.settings import Composition
from lyceum.credit.group import GroupRelative
from lyceum.papers.absolute_zero.credit_task_relative import TaskRelative


def test_each_role_has_a_baseline_and_a_scale_of_its_own_over_the_step():
    # Proposers: -1 and 1/2, mean -1/4, std 3/4: -1 and 1. Solvers: 1, 0, 0, 0: mean 1/4, std sqrt(3)/4: sqrt(3) and
    # -1/sqrt(3) thrice. One baseline for all would be 1/12, and its solvers' zeros and the proposer's half share it.
    found = TaskRelative().build()(forest()).advantage[:, 1]
    root = 3**0.5
    torch.testing.assert_close(found, torch.tensor([-1, root, -1 / root, 1, -1 / root, -1 / root]), atol=1e-4, rtol=0)


def test_a_group_of_one_proposal_would_learn_nothing_by_group_credit():
    found = GroupRelative().build()(forest()).advantage[:, 1]
    assert found[[0, 3]].tolist() == [0.0, 0.0]


def test_it_needs_roles():
    (line,) = TaskRelative().conflicts(Composition())
    assert "in a stage without roles" in line
