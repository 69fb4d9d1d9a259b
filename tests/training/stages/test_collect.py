"""Which groups a step is made of."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.recipe.schema import load_recipe
from lyceum.training.stages._groups import Collect, SampledGroups
from lyceum.training.stages.online import Online
from lyceum.utils.errors import RecipeError


def group(right: int, of: int = 8) -> Tree:
    root = Node(None, [2], Origin.PROMPT)
    for i in range(of):
        root.add_drawn(Continuation([3], [0.0], [0.0], [0], "stop")).grade = Grade(float(i < right), i < right)
    return Tree(Task(f"{right} of {of}", ()), [root])


def test_the_bounds_are_kept_themselves():
    collect = Collect(keep="solved-between", solved_low=0.25, solved_high=0.75)
    assert [right for right in range(9) if collect.keeps(group(right))] == [2, 3, 4, 5, 6]


def test_one_bound_alone_drops_on_one_side():
    assert [r for r in range(9) if Collect(keep="solved-between", solved_low=0.5).keeps(group(r))] == [4, 5, 6, 7, 8]
    assert [r for r in range(9) if Collect(keep="solved-between", solved_high=0.25).keeps(group(r))] == [0, 1, 2]


def test_a_group_that_nobody_calls_right_or_wrong_is_not_between():
    tree = group(4)
    for leaf in tree.trajectories:
        leaf.grade = Grade(0.3)
    assert not Collect(keep="solved-between", solved_low=0.0, solved_high=1.0).keeps(tree)


def test_groups_that_only_lack_a_verdict_are_counted():
    def of(*grades: Grade) -> Tree:
        root = Node(None, [2], Origin.PROMPT)
        root.children = [Node(root, [3], Origin.POLICY, finish="stop", grade=grade) for grade in grades]
        return Tree(Task("t", ()), [root])

    dropped = [of(Grade(0.1), Grade(0.2)), of(Grade(0.1), Grade(0.1)), of(Grade(0.1, True), Grade(0.2, True))]
    assert [Collect(keep=keep).unjudged(dropped) for keep in ("partly-solved", "with-gradient")] == [1, 0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["collect.keep=solved-between"], "got None and None with keep 'solved-between'"),
        (["collect.solved_low=0.2"], "got 0.2 and None with keep 'all'"),
        (["collect.keep=partly-solved", "collect.solved_high=0.2"], "got None and 0.2 with keep 'partly-solved'"),
        (["collect.keep=solved-between", "collect.solved_low=0.8", "collect.solved_high=0.2"], "got 0.8, but"),
        (["collect.keep=solved-between", "collect.solved_low=1.2"], "collect.solved_low: got 1.2"),
    ],
)
def test_bounds_that_do_not_fit_are_refused(given, said):
    with pytest.raises(RecipeError, match=said):
        load_recipe("grpo", given)


@given(st.lists(st.integers(0, 8), max_size=60), st.integers(1, 6), st.integers(1, 5))
def test_a_step_is_refilled_to_its_size_and_never_has_more(rights, size, waves):
    run = Run(rights, size, Collect(keep="solved-between", solved_low=0.25, solved_high=0.75, max_waves=waves))
    groups = asyncio.run(run.take(0, size))
    kept = [each for each in groups if each.kept]
    good = [right for right in run.sampled if 2 <= right <= 6]
    assert [each.tree.task.id for each in kept] == [f"{right} of 8" for right in good]
    assert len(groups) == len(run.sampled)
    # Not fuller than asked for, and not less full while there were waves left.
    assert len(kept) == size or (len(kept) < size and run.waves == waves)


class Run(SampledGroups):
    """A stage whose groups come as they are given, then all half solved; no model anywhere."""

    def __init__(self, rights: list[int], size: int, collect: Collect) -> None:
        self.left, self.sampled, self.waves = list(rights), [], 0
        sampler = SimpleNamespace(all_drawn=False, weight=lambda tree: 1.0, sample=self.given)
        super().__init__(Online(tasks_per_step=size, collect=collect), 0, sampler)

    async def given(self, tasks, **_):
        self.waves += 1
        rights = [self.left.pop(0) if self.left else 4 for _ in range(tasks)]
        self.sampled += rights
        return [group(right) for right in rights]
