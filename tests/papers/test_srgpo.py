import torch
from random_trees import letters

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.papers.srgpo.credit_srgpo import SRGPO, random_groups


def tree_of(name, *rows):
    """(outcome, rewards of its steps) of each row; a step is one token."""
    root = Node(None, [1], Origin.PROMPT)
    for number, (outcome, steps) in enumerate(rows):
        n = len(steps)
        tokens = [10 * number + 5 + i for i in range(n)]
        leaf = root.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))
        leaf.grade = Grade(outcome, steps=tuple(JudgedStep(i, i + 1, reward) for i, reward in enumerate(steps)))
    return Tree(Task(name, ()), [root])


def test_steps_are_compared_across_tasks():
    # One row each: no row has company, every advantage is of steps. 1 0 | 1 1: mean 3/4, times the weight 1/2.
    forest = build_forest([tree_of("a", (1.0, (1.0, 0.0))), tree_of("b", (0.0, (1.0, 1.0)))], decode=letters)
    credited = SRGPO(scale="none").build()(forest)
    assert credited.advantage.tolist() == [[0, 0.125, -0.375], [0, 0.125, 0.125]]
    assert credited.metrics == {"steps": 4, "tokens_with_step_advantage": 4, "outcome/share": 0, "steps/share": 1}


def test_a_good_step_of_a_failed_trajectory_loses_less():
    # Outcomes +-1/2. Steps 1 1 | 1 0 | mean 3/4: +-1/4 and -3/4, times 1/2.
    forest = build_forest([tree_of("a", (1.0, (1.0, 1.0)), (0.0, (1.0, 0.0)))], decode=letters)
    assert SRGPO(scale="none").build()(forest).advantage.tolist() == [[0, 0.625, 0.625], [0, -0.375, -0.875]]


def test_divided_by_the_samples_standard_deviation_as_in_the_authors_code():
    # Two of two at both levels: +-1/2 over sqrt(1/2), 1 + 1/2 times it.
    forest = build_forest([tree_of("a", (1.0, (1.0,)), (0.0, (0.0,)))], decode=letters)
    found = SRGPO().build()(forest).advantage[:, 1]
    torch.testing.assert_close(found, torch.tensor([1.5, -1.5]) * 0.5**0.5, rtol=1e-5, atol=0)


def test_groups_are_drawn_anew_and_the_rest_is_a_smaller_one():
    drawn = [random_groups(5, 2, seed=seed) for seed in range(8)]
    assert all(sorted(groups.bincount().tolist()) == [1, 2, 2] for groups in drawn)
    assert len({tuple(groups.tolist()) for groups in drawn}) > 1
    assert random_groups(5, 2, seed=3).equal(drawn[3])
    assert random_groups(0, 2, seed=0).tolist() == []


def test_where_nothing_is_judged_it_is_group(forest_of):
    forest = forest_of([(1.0, 2), (0.0, 1)])
    credited = SRGPO(ddof=0).build()(forest)
    assert credited.advantage.equal(GroupRelative().build()(forest).advantage)
    assert credited.metrics["steps"] == 0
