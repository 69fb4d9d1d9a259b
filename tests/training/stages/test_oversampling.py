"""How many tasks a wave draws for the groups that are missing, and which groups are trained on."""

import pytest

from lyceum.core.group import Group
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.recipe.schema import load_recipe
from lyceum.training.stages._groups import Oversample, Oversampling
from lyceum.utils.errors import RecipeError


def group(right: int, of: int = 8) -> Group:
    root = Node(None, [2], Origin.PROMPT)
    for i in range(of):
        root.add_drawn(Continuation([3], [0.0], [0.0], [0], "stop")).grade = Grade(float(i < right), i < right)
    return Group(Tree(Task(f"{right} of {of}", ()), [root]))


def test_without_settings_exactly_the_missing_groups_are_drawn():
    plain, kept = Oversampling(None), [group(1), group(2)]
    plain.count(kept=1, sampled=8)
    assert plain.tasks(5) == 5
    assert plain.finish(kept, 2) == (kept, [])
    assert plain.metrics == {}


def test_least_fills_a_step_by_the_smallest_share_so_far():
    state = Oversampling(Oversample(by="least", most=10))
    assert state.tasks(12) == 12
    state.count(kept=3, sampled=12)
    # 9 are missing, and a quarter was kept: 36.
    assert state.tasks(9) == 36
    state.count(kept=15, sampled=36)
    kept, surplus = state.finish([group(4)] * 18, 12)
    assert (len(kept), len(surplus)) == (12, 6)
    assert all(each.dropped for each in surplus)
    assert state.metrics == {"oversample/tasks": 48, "oversample/kept": 18, "oversample/surplus": 6}
    # Of the whole step 18 / 48 were kept; the worse wave counts in its own step alone: 12 * 48 / 18 = 32.
    assert state.tasks(12) == 32
    state.count(kept=32, sampled=32)
    state.finish([group(4)] * 32, 12)
    assert state.tasks(12) == 32  # a better step changes nothing


def test_least_is_bounded_where_nothing_is_kept():
    state = Oversampling(Oversample(by="least", most=4))
    state.count(kept=0, sampled=12)
    assert state.tasks(12) == 48
    state.finish([], 12)
    assert state.tasks(3) == 12


def test_average_follows_the_inverse_share_of_each_step():
    state = Oversampling(Oversample(by="average", decay=0.75, most=4))
    state.count(kept=4, sampled=8)
    assert state.tasks(8) == 8  # the factor is that of earlier steps
    state.finish([group(4)] * 4, 8)
    # 0.75 * 1 + 0.25 * 2, times 8.
    assert state.tasks(8) == 10
    state.count(kept=0, sampled=10)
    state.finish([], 8)
    assert state.expansion == pytest.approx(0.75 * 1.25 + 0.25 * 4)  # bounded


def test_average_keeps_the_most_balanced_in_the_order_drawn_and_least_the_first():
    groups = [group(1), group(4), group(7), group(3), group(6)]
    names = [
        [each.tree.task.id for each in found] for found in Oversampling(Oversample(by="average")).finish(groups, 3)
    ]
    # Distances from one half: 3/8, 0, 3/8, 1/8, 1/4.
    assert names == [["4 of 8", "3 of 8", "6 of 8"], ["1 of 8", "7 of 8"]]
    names = [[of.tree.task.id for of in found] for found in Oversampling(Oversample(by="least")).finish(groups, 3)]
    assert names == [["1 of 8", "4 of 8", "7 of 8"], ["3 of 8", "6 of 8"]]


def test_its_state_goes_on_where_it_was():
    whole = Oversampling(Oversample(by="average"))
    whole.count(kept=1, sampled=4)
    whole.finish([group(4)], 4)
    resumed = Oversampling(Oversample(by="average"))
    resumed.load_state_dict(whole.state_dict())
    assert resumed.tasks(100) == whole.tasks(100) > 100


def test_where_nothing_is_dropped_nothing_is_oversampled():
    with pytest.raises(RecipeError, match="collect: oversample: got it with keep 'all'"):
        load_recipe("grpo", ["collect={oversample: {by: least}}"])
    with pytest.raises(RecipeError, match=r"collect.oversample.most: got 0.5"):
        load_recipe("dapo", ["collect.oversample={most: 0.5}"])
