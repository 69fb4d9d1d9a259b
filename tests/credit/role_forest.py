"""A forest whose leaves have roles."""

from lyceum.core.forest import Forest, build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Task


def forest() -> Forest:
    """Two trees of a proposal and two answers each; tokens are numbered, so that none is shared."""
    trees, token = [], 10
    for rewards in ((-1.0, 1.0, 0.0), (0.5, 0.0, 0.0)):
        tree = Tree(Task("t", ()), [Node.prompt([5])])
        for role, reward in zip(("proposer", "solver", "solver"), rewards, strict=True):
            token += 1
            leaf = tree.root.add_drawn(Continuation([token], [-1.0], [-1.0], [0], "stop"), role=role)
            leaf.grade = Grade(reward)
        trees.append(tree)
    return build_forest(trees)
