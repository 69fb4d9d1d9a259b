import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.papers.pcurl.curriculum_difficulty_weight import DifficultyWeight, difficulty_weight
from lyceum.tasks.chain import Chain

SHAPES = ("easy", "medium", "hard")


def tree_of(outcomes, verdicts):
    tree = Tree(Task("t", ()), [Node(None, [5], Origin.PROMPT)])
    for outcome, verdict in zip(outcomes, verdicts, strict=True):
        leaf = tree.root.add_drawn(Continuation([7, 1], [-1.0] * 2, [-1.0] * 2, [0] * 2, "stop"))
        leaf.grade = Grade(outcome, verdict)
    return tree


@pytest.mark.parametrize(
    ("solved", "easy", "medium", "hard"),
    # A quarter is cos(-pi/4). Easy and hard must not be each other's: easy falls below one half, hard above it.
    [
        (0.0, 0, 0, 0.25),
        (0.25, math.sqrt(0.5), math.sqrt(0.5), 1),
        (0.5, 1, 1, 1),
        (0.75, 1, math.sqrt(0.5), math.sqrt(0.5)),
        (1.0, 1, 0, 0),
    ],
)
def test_each_stage_weighs_its_own_groups_most(solved, easy, medium, hard):
    assert [difficulty_weight(solved, shape) for shape in SHAPES] == pytest.approx([easy, medium, hard])


@pytest.mark.parametrize(
    ("solved", "easy", "medium", "hard"),
    [(0, 0, 0, 0), (0.125, 0, 0, 1), (0.25, 0, 1, 1), (0.5, 1, 1, 1), (1, 1, 0, 0)],
)
def test_binary_shapes_keep_their_ends_and_never_a_group_without_a_right_answer(solved, easy, medium, hard):
    assert [difficulty_weight(solved, f"binary-{shape}") for shape in SHAPES] == [easy, medium, hard]


@given(st.floats(0, 1))
def test_easy_mirrors_hard_but_for_the_ends(solved):
    if 0 < solved < 1:
        assert difficulty_weight(solved, "easy") == pytest.approx(difficulty_weight(1 - solved, "hard"), abs=1e-9)


def test_a_share_outside_of_0_to_1_is_refused():
    with pytest.raises(ValueError, match=r"got 1\.5"):
        difficulty_weight(1.5, "easy")


def test_the_weight_is_of_the_answers_and_not_of_what_else_is_rewarded():
    # One of four right: c(1/4), though every reward differs from 0 and 1.
    curriculum = DifficultyWeight(shape="medium").build(Chain().build("train", 0), seed=0)
    tree = tree_of([1.5, 0.5, 0.2, -0.1], [True, False, False, False])
    assert curriculum.weight(tree) == pytest.approx(math.sqrt(0.5))
    forest = build_forest([tree], weights=[curriculum.weight(tree)])
    assert forest.weight.tolist() == pytest.approx([math.sqrt(0.5)] * 4)


def test_a_group_of_which_nobody_says_what_is_right_counts_fully():
    curriculum = DifficultyWeight(shape="hard").build(Chain().build("train", 0), seed=0)
    assert curriculum.weight(tree_of([0.3, 0.4], [None, None])) == 1


def test_what_is_drawn_is_the_inner_curriculum_s_and_so_is_its_state():
    source = Chain(size=20).build("train", 0)
    weighted, plain = DifficultyWeight().build(source, seed=3), DifficultyWeight().draws
    assert [task.id for task in weighted.draw(5)] == [
        task.id for task in DifficultyWeight(draws="uniform").build(source, seed=3).draw(5)
    ]
    assert plain == "uniform" or plain.kind == "uniform"
    resumed = DifficultyWeight().build(source, seed=9)
    resumed.load_state_dict(weighted.state_dict())
    assert [task.id for task in resumed.draw(7)] == [task.id for task in weighted.draw(7)]
