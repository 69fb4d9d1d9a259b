import pytest
import torch
from pydantic import ValidationError

from lyceum.core.forest import build_forest
from lyceum.core.roles import Roles
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task

PAIR = Roles(models=("left", "right"), play={"pioneer": "left", "observer": "right"}, swap_every=2)


def test_one_model_plays_every_role_by_default():
    assert [Roles().model(role, step) for role in ("", "pioneer") for step in (0, 7)] == [0, 0, 0, 0]


def test_two_models_swap_every_two_steps_and_back():
    assert [PAIR.model("pioneer", step) for step in range(6)] == [0, 0, 1, 1, 0, 0]
    assert [PAIR.model("observer", step) for step in range(6)] == [1, 1, 0, 0, 1, 1]
    assert [PAIR.swaps(step) for step in range(6)] == [0, 0, 1, 1, 2, 2]


def test_a_role_that_is_not_named_stays_the_first_models():
    # What a grader asks, or an evaluation, must not move from copy to copy.
    assert [PAIR.model("", step) for step in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"models": ("a", "a")}, "different names"),
        ({"models": ("a", "b"), "play": {"pioneer": "c"}}, "play.pioneer: got 'c'; allowed: a, b"),
        ({"models": ("a", "b"), "play": {"pioneer": "a"}}, "got 'b', which plays no role"),
        ({"models": ("../x",)}, "should match pattern"),
        ({"swap_every": 3}, "with one model"),
    ],
)
def test_what_makes_no_sense_is_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Roles(**given)


def test_roles_are_those_that_a_component_plays():
    assert PAIR.check(["pioneer", "observer"]) == []
    assert "roles.play: got 'pioneer'; allowed: none" in PAIR.check([])[0]
    (line,) = PAIR.check(["pioneer", "observer", "judge"])
    assert line == "roles.play: got no model for judge; allowed: one of left, right"


def drawn(parent, tokens, role, model=0, reward=1.0):
    logprob = [-1.0] * len(tokens)
    leaf = parent.add_drawn(Continuation(tokens, logprob, logprob, [0] * len(tokens), "stop"), role=role, model=model)
    leaf.grade = Grade(reward)
    return leaf


def test_rows_are_grouped_by_tree_role_and_marked_prompt():
    trees = []
    for _ in range(2):
        tree = Tree(Task("t", ()), [Node.prompt([5])])
        drawn(tree.root, [6], "proposer")
        for key in ("first", "second"):
            prompt = tree.add_prompt([7, len(tree.roots)])
            prompt.key = key
            drawn(prompt, [8], "solver")
            drawn(prompt, [9], "solver")
        trees.append(tree)
    forest = build_forest(trees)
    # Numbers in a tree in the order of appearance, times the number of trees, plus the tree's own.
    assert forest.group.tolist() == [0, 2, 2, 4, 4, 1, 3, 3, 5, 5]
    assert forest.role == ["proposer", *["solver"] * 4] * 2
    assert forest.select(torch.tensor([1, 5])).role == ["solver", "proposer"]


def test_without_roles_groups_are_the_trees_and_nothing_else_is_there():
    trees = [Tree(Task(name, ()), [Node.prompt([5])]) for name in "ab"]
    for tree in trees:
        drawn(tree.add_prompt([4]), [6], "")
        drawn(tree.root, [6], "")
    forest = build_forest(trees)
    assert forest.group.tolist() == [0, 0, 1, 1]
    assert forest.role is None
    assert forest.columns == {}


def conversation():
    """Two models drew the same token 6; the second's answer to it stands below the first's."""
    tree = Tree(Task("t", ()), [Node.prompt([5])])
    first = drawn(tree.root, [6, 7], "pioneer", model=0)
    drawn(first, [8], "observer", model=1)
    drawn(tree.root, [6], "observer", model=1)
    return build_forest([tree])


def test_equal_tokens_of_two_models_are_not_shared():
    forest = conversation()
    assert forest.token.tolist() == [5, 6, 7, 8, 6]
    assert forest.columns["model"].tolist() == [0, 0, 0, 1, 1]


def test_what_another_model_wrote_is_context():
    forest = conversation()
    first, second = forest.written_by(0), forest.written_by(1)
    # The first wrote in one row alone, whose last token is the second's; the second in both.
    assert first.rows.tolist() == [0]
    assert second.rows.tolist() == [0, 1]
    assert first.forest.token.tolist() == [5, 6, 7, 8]
    assert first.tokens.tolist() == [0, 1, 2, 3]
    prompt, policy = int(Origin.PROMPT), int(Origin.POLICY)
    assert first.forest.origin.tolist() == [prompt, policy, policy, prompt]
    assert second.forest.origin.tolist() == [prompt, prompt, prompt, policy, policy]
    assert second.forest.trainable(second.forest.rows()).tolist() == [
        [False, False, False, True],
        [False, True, False, False],
    ]
