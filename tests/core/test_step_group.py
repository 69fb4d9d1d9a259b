"""What a step knows of a task's trajectories beside themselves."""

import torch

from lyceum.core.group import AGE, Group, flatten
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Task


def tree(number: int, *rewards: float | None) -> Tree:
    """Two tokens of a prompt, and one for each trajectory; None goes on in the next step."""
    root = Node.prompt([number, 1])
    for token, reward in enumerate(rewards, start=5):
        end = None if reward is None else "stop"
        leaf = root.add_drawn(Continuation([token], [-0.5], [-0.5], [0], end))
        leaf.grade = None if reward is None else Grade(reward)
    found = Tree(Task(f"task-{number}", ()), [root], sampled_tokens=len(rewards))
    found.chosen = list(root.children)
    return found


def test_only_what_the_step_sampled_and_kept_is_kept():
    one = tree(0, 1.0)
    groups = [Group(one), Group(one, age=2), Group(one, dropped=True), Group(one, finished=False)]
    assert [group.sampled for group in groups] == [True, False, True, False]
    assert [group.kept for group in groups] == [True, False, False, False]


def test_a_forest_has_each_tokens_weight_and_age():
    recorded = Group.recorded(tree(1, 1.0), 0.5, 3)
    forest = flatten([Group(tree(0, 0.0, 1.0), 2.0), recorded])
    assert forest.weight.tolist() == [2.0, 2.0, 0.5]
    # Two tokens of a prompt and one of each trajectory.
    assert forest.columns[AGE].tolist() == [0.0] * 4 + [3.0] * 3
    assert AGE not in flatten([Group(tree(0, 0.0, 1.0))]).columns


def test_what_goes_on_has_a_row_without_a_reward():
    forest = flatten([Group(tree(0, 1.0)), Group(tree(1, None, 0.0), finished=False)])
    assert forest.reward.nan_to_num(-1).tolist() == [1.0, 0.0, -1.0]
    assert torch.equal(forest.tree[forest.leaf], torch.tensor([0, 1, 1]))


def test_a_recorded_group_is_no_tokens_of_the_step_and_stays_as_old_as_it_is():
    recorded = Group.recorded(tree(1, 1.0), 0.5, 3)
    assert (recorded.age, recorded.tree.sampled_tokens) == (3, 0)
    assert Group.read(recorded.tree, 0.5) == recorded
    assert Group.read(tree(1, 1.0), 0.5, dropped=True).age == 0
