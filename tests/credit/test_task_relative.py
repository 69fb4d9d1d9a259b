import torch

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Task
from lyceum.credit.group import GroupRelative
from lyceum.credit.task_relative import TaskRelative


def forest():
    """Two trees of a proposal and two answers each; tokens are numbered, so that none is shared."""
    trees, token = [], 10
    for rewards in ((-1.0, 1.0, 0.0), (0.5, 0.0, 0.0)):
        tree = Tree(Task("t", ()), [Node.prompt([5])])
        for role, reward in zip(("proposer", "solver", "solver"), rewards, strict=True):
            token += 1
            leaf = tree.root.add_drawn(Continuation([token], [-1.0], [-1.0], [0], "stop"), role=role)
            leaf.grade = Grade(reward)
        trees.append(tree)
    return build_forest(trees)


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
