from lyceum.core.steps import Steps
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Example, Grade, JudgedStep, Origin, Task
from lyceum.value.labels import Factor, examples_for, pairs_of, preferred

FACTORS = [Factor(), Factor(by="tokens", margin=1, higher=False)]
LETTERS = Steps(by="marker", markers=("b",), tokens=10)


def decode(tokens):
    return "".join(map(chr, tokens))


def tree_of(*graded):
    root = Node(None, [1, 2], Origin.PROMPT)
    for text, grade in graded:
        leaf = root.add(list(map(ord, text)), Origin.POLICY, text)
        leaf.grade, leaf.finish = grade, "stop"
    return Tree(Task("t", ()), [root])


def test_the_next_factor_decides_where_one_does_not():
    assert preferred([1, 9], [0, 3], FACTORS) == (1, 0)
    assert preferred([0, 3], [1, 9], FACTORS) == (-1, 0)
    assert preferred([1, 9], [1, 3], FACTORS) == (-1, 1)  # as right, and longer
    assert preferred([1, 4], [1, 3], FACTORS) == (0, -1)  # within the margin
    assert preferred([None, 3], [1, 9], FACTORS) == (1, 1)  # without a verdict


def test_pairs_are_of_trajectories_that_differ():
    right, wrong = Grade(1.0, True), Grade(0.0, False)
    tree = tree_of(("a", wrong), ("abc", right), ("a", wrong), ("c", right))
    examples, decided = pairs_of(tree, FACTORS, 10)
    better_then_worse = [decode(example.tokens[2:]) for example in examples]
    # Both wrong ones are the same text. The right ones differ in two tokens, more than the margin.
    assert better_then_worse == ["abc", "a", "c", "a", "abc", "a", "c", "abc", "c", "a"]
    assert decided == [0, 0, 0, 1, 0]
    assert all(example.prompt == 2 for example in examples)
    assert len(pairs_of(tree, FACTORS, 2)[0]) == 4


def test_pairs_are_of_what_the_model_is_shown():
    right, wrong = Grade(1.0, True), Grade(0.0, False)
    tree = tree_of(("ax", right), ("bx", wrong), ("ay", wrong))

    def last_letter(leaf):
        return [*leaf.root.tokens, leaf.tokens[-1]]

    # The first two differ in their reasoning alone: nothing can be learnt from x against x.
    examples, _ = pairs_of(tree, FACTORS, 10, last_letter)
    assert [decode(example.tokens[2:]) for example in examples] == ["x", "y"]
    [first, *_] = examples_for(tree, "outcome", decode, LETTERS, last_letter)
    assert (decode(first.tokens[2:]), first.value) == ("x", 1.0)


def test_labels_of_a_tree():
    steps = (JudgedStep(0, 2, 1.0), JudgedStep(2, 3, 0.0))
    tree = tree_of(("abc", Grade(0.0, False, steps=steps)), ("x", Grade(0.7)), ("y", Grade.ungraded("why")))
    a, b, c, x = map(ord, "abcx")
    assert examples_for(tree, "outcome", decode, LETTERS) == [
        Example([1, 2, a, b, c], 0.0, 2),
        Example([1, 2, x], 0.7, 2),
    ]
    assert examples_for(tree, "steps", decode, LETTERS) == [
        Example([1, 2, a, b], 1.0, 2),
        Example([1, 2, a, b, c], 0.0, 2),
    ]
    assert examples_for(tree, "progress", decode, LETTERS) == [
        Example([1, 2, a, b, c], 0.0, 2, [4, 5]),
        Example([1, 2, x], 0.7, 2, [3]),
    ]
    # Monte Carlo: the share of right ones below each node.
    root = tree.root
    stem = root.children[0]
    for right in (1.0, 0.0, 1.0, 1.0):
        stem.add([50 + len(stem.children)], Origin.POLICY).grade = Grade(right)
    stem.grade = None
    found = {tuple(example.tokens): example.value for example in examples_for(tree, "mean-outcome", decode, LETTERS)}
    assert found[1, 2, a, b, c] == 0.75
