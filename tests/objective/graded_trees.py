"""Trees of graded trajectories for objectives that read outcomes."""

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task


def graded(*outcomes, lengths=(3, 9, 4, 7, 5, 6)) -> Tree:
    """One trajectory below one prompt for each outcome, of different tokens."""
    root = Node(None, [1, 2, 3], Origin.PROMPT)
    for at, outcome in enumerate(outcomes):
        n = lengths[at]
        leaf = root.add_drawn(Continuation([4 + at + i for i in range(n)], [-1.0] * n, [-1.0] * n, [0] * n, "stop"))
        leaf.grade = Grade(outcome)
    return Tree(Task("t", ()), [root])
