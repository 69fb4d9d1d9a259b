from lyceum.core.tree import Node, Tree, graft
from lyceum.core.types import Continuation, Grade, Origin, Task


def drawn(node, right):
    leaf = node.add_drawn(Continuation([7, 1], [-0.5, -1.0], [-0.5, -1.0], [3, 3], "stop"), "a")
    leaf.grade = Grade(float(right), right)
    return leaf


def a_tree():
    return Tree(Task("t", ()), [Node(None, [5], Origin.PROMPT)])


def test_a_graft_is_a_copy_below_another_prompt_with_what_it_was_drawn_under():
    tree = a_tree()
    hinted = tree.add_prompt([5, 9])
    leaf = drawn(drawn(hinted, False), True)
    copied = graft(leaf, tree.root)
    assert copied.path_tokens() == [5, 7, 1, 7, 1]
    assert leaf.path_tokens() == [5, 9, 7, 1, 7, 1]
    assert (copied.behaviour_logprob, copied.version, copied.grade) == (leaf.behaviour_logprob, [3, 3], leaf.grade)
    assert copied.grafted
    assert not leaf.grafted


def test_a_graft_from_any_prompt_leaves_out_what_was_given_before_the_start():
    # A guide inside another one may return what it drew under a prompt of its own.
    tree = a_tree()
    start, elsewhere = (root.add([4], Origin.PREFIX, "p") for root in (tree.root, tree.add_prompt([5, 9])))
    copied = graft(drawn(elsewhere, True), start)
    assert copied.path_tokens() == [5, 4, 7, 1]


def test_what_was_helped_counts_as_solved_and_not_as_solved_unaided():
    # two failures of the policy's own, and three successes: under a hint, grafted, and a teacher's
    tree = a_tree()
    own = [drawn(tree.root, False), drawn(tree.root, False)]
    under_hint = drawn(tree.add_prompt([5, 9]), True)
    grafted = graft(under_hint, tree.root)
    teacher = tree.root.add([8], Origin.TEACHER)
    teacher.grade = Grade(1.0, True)
    tree.chosen = [*own, under_hint, grafted, teacher]
    assert tree.solved == 3 / 5
    assert tree.solved_unaided == 0
    # Both failures have given way: they stay failures. Else the mean over tasks would leave out those that failed.
    tree.chosen = [under_hint]
    assert (tree.solved, tree.solved_unaided) == (1, 0)
    assert tree.unaided == own


def test_nothing_is_known_of_what_the_policy_does_unaided_where_all_had_help():
    tree = a_tree()
    tree.chosen = [drawn(tree.add_prompt([5, 9]), True)]
    assert (tree.solved, tree.solved_unaided) == (1, None)
