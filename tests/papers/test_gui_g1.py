import math

import pytest

from lyceum.papers.gui_g1.curriculum_target_size import TargetSize, size_weight
from lyceum.papers.ui_r1.tasks_screens import Screens
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError


def test_a_target_of_a_quarter_of_the_area_counts_twice():
    assert size_weight(0.0625, 0.0625) == 1
    assert size_weight(0.0625 / 4, 0.0625) == pytest.approx(2)
    assert size_weight(0.25, 0.0625) == pytest.approx(0.5)


def test_groups_are_weighted_by_their_own_target():
    from lyceum.core.tree import Tree

    source = Screens(asks=("find",)).build("train", 0)
    made = TargetSize().build(source, seed=0)
    trees = [Tree(task, []) for task in made.draw(6)]
    made.observe(trees)
    weights = [made.weight(tree) for tree in trees]
    assert weights == [math.sqrt(0.0625 / tree.task.columns["area"]) for tree in trees]
    assert len(set(weights)) > 1
    assert made.metrics()["weight/largest"] == max(weights)


def test_tasks_without_an_area_are_refused():
    with pytest.raises(RecipeError, match="says nothing of its target's area; allowed: tasks with a column 'area'"):
        TargetSize().check_tasks(Chain().build("train", 0))
