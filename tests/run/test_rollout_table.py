"""The table of sampled trajectories."""

from __future__ import annotations

import pytest

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Origin, Task
from lyceum.run.rollout_table import trajectory_table


@pytest.mark.parametrize(
    ("numbers", "correct"),
    [
        ([1.0, 0.0, None], [True, False, None]),  # as the step's metric correct/mean reads them
        ([1.0, 0.0, 0.5], [None, None, None]),  # a reward that happens to be 1 is no verdict
    ],
)
def test_rewards_of_0_and_1_say_what_is_correct_where_no_other_number_is_among_them(numbers, correct):
    tree = Tree(Task("t", (), "5", {}), [Node.prompt([1], "2+3=")])
    for number in numbers:
        grade = Grade(None) if number is None else Grade(number, plain={"mine": number})
        tree.root.children.append(
            Node(tree.root, [3], Origin.POLICY, [-1.0], [-1.0], [0], "stop", "5", grade=grade),
        )
    tree.chosen = list(tree.root.children)
    assert trajectory_table(1, [tree], None, lambda tokens: "")["correct"].to_pylist() == correct
