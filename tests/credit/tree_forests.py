"""Forests of small trees written as nested lists."""

from random import Random

from lyceum.core.forest import Forest, build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task


def grow(node: Node, below: object, tokens: list[int], length: int = 1) -> None:
    """A number is a leaf with this reward, a list an inner node; each node has tokens of its own."""
    for child in below if isinstance(below, list) else []:
        run = [tokens.pop(0) for _ in range(length)]
        drawn = node.add_drawn(Continuation(run, [-1.0] * length, [-1.0] * length, [0] * length, "stop"))
        if isinstance(child, list):
            grow(drawn, child, tokens, length)
        else:
            drawn.grade = Grade(float(child))


def forest_of(*trees: list, length: int = 1, weights: list[float] | None = None) -> Forest:
    """Trees under a prompt of one token; every node has ``length`` tokens."""
    grown = []
    for number, below in enumerate(trees):
        root = Node(None, [1], Origin.PROMPT)
        grow(root, below, list(range(2, 2000)), length)
        grown.append(Tree(Task(str(number), ()), [root]))
    return build_forest(grown, weights=weights)


def random_nested(rng: Random, depth: int = 3) -> list:
    """A tree with rewards from -1 to 1, at least one leaf."""
    return [
        rng.choice((0.0, 1.0, -1.0, 0.5)) if depth == 0 or rng.random() < 0.5 else random_nested(rng, depth - 1)
        for _ in range(rng.randint(1, 3))
    ]
