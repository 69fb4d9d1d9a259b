"""Forests for tests of credits."""

import pytest
import torch
from random_trees import letters

from lyceum.core.forest import Forest, build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task


def drawn(node: Node, tokens: list[int]) -> Node:
    n = len(tokens)
    return node.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))


@pytest.fixture
def forest_of():
    """(groups of (reward, tokens written), weights) -> a forest whose rows share a prompt of one token."""

    def make(*groups: list[tuple[float, int]], weights: list[float] | None = None, **columns: float) -> Forest:
        trees = []
        for g, group in enumerate(groups):
            root = Node(None, [1], Origin.PROMPT)
            for r, (reward, length) in enumerate(group):
                leaf = drawn(root, [100 * (r + 1) + i for i in range(length)])
                leaf.grade = Grade(reward)
            trees.append(Tree(Task(f"task-{g}", ()), [root]))
        forest = build_forest(trees, weights=weights)
        return forest.with_columns(**{k: torch.full((forest.n_tokens,), v) for k, v in columns.items()})

    return make


@pytest.fixture
def forest_with_tool():
    """One row: prompt, two tokens written, a tool's two, two written; judged after one token, two, and at the end."""
    root = Node(None, [1], Origin.PROMPT)
    answer = drawn(root, [10, 11]).add([20, 21], Origin.TOOL, letters([20, 21]))
    leaf = drawn(answer, [12, 13])
    leaf.grade = Grade(1.0, steps=(JudgedStep(0, 1, 0.25), JudgedStep(1, 2, 0.5), JudgedStep(2, 4, -0.5)))
    return build_forest([Tree(Task("t", ()), [root])], decode=letters)


def is_ancestor(forest, above, below):
    """Whether token ``above[i]`` is on the path that ends in ``below[i]``, itself included."""
    current = below.clone()
    while bool((moving := (current != forest.ROOT) & (forest.position[current] > forest.position[above])).any()):
        current = torch.where(moving, forest.parent[current], current)
    return current == above
