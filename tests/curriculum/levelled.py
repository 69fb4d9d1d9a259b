"""Tasks with levels, and graded trees of them, for tests of curricula."""

import json
from collections.abc import Sequence

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.run import codec as encoding
from lyceum.tasks import base as tasks


class Source(tasks.Source):
    """Task i is of level ``levels[i % len(levels)]``."""

    def __init__(self, n: int = 40, levels: Sequence[object] = (1, 2), column: str = "level") -> None:
        self.n, self.levels, self.column = n, levels, column

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.n:
            raise IndexError(index)
        level = self.levels[index % len(self.levels)]
        return Task(str(index), ({"role": "user", "content": f"{index}+1="},), "", {self.column: level})

    def grader(self):
        raise NotImplementedError

    def hinted(self, task, hint):
        raise NotImplementedError


def graded(task: Task, verdicts: Sequence[object], advantage: float = 0.0) -> Tree:
    """A tree with a trajectory for each verdict: True, False, a reward that says neither, or None for ungraded."""
    root = Node(None, [2], Origin.PROMPT)
    for verdict in verdicts:
        leaf = root.add_drawn(Continuation([3], [-0.5], [-0.5], [0], "stop"))
        if isinstance(verdict, bool):
            leaf.grade = Grade(float(verdict), verdict)
        else:
            leaf.grade = Grade.ungraded("no verdict") if verdict is None else Grade(verdict)
    return Tree(task, [root], sampled_tokens=len(verdicts), mean_abs_advantage=advantage)


def rescued(task: Task, verdicts: Sequence[object], own: object = False) -> Tree:
    """A tree whose own trajectories gave way to others of these verdicts, written under a hint."""
    tree = graded(task, [own] * len(verdicts))
    hinted = graded(task, verdicts)
    tree.chosen = hinted.trajectories
    tree.roots += hinted.roots
    return tree


def tree_of(level: object, verdicts: Sequence[object] = (True, False), advantage: float = 0.0, id: str = "t") -> Tree:
    return graded(Task(id, (), "", {"level": level}), verdicts, advantage)


def saved(curriculum):
    """Its state as a checkpoint would give it back."""
    text, tensors = encoding.encode(curriculum.state_dict())
    json.loads(text)
    return encoding.decode(text, {name: tensor.clone() for name, tensor in tensors.items()})


def ids(curriculum, *sizes: int) -> list[str]:
    return [task.id for n in sizes for task in curriculum.draw(n)]


def assert_resumes(first, resumed, trees: Sequence[Tree]) -> None:
    """``resumed``, built with another seed, draws what ``first`` draws, now and after it has seen what comes next."""
    resumed.load_state_dict(saved(first))
    for _ in range(3):
        expected = [(task.id, task.samples, task.columns) for task in first.draw(7)]
        assert [(task.id, task.samples, task.columns) for task in resumed.draw(7)] == expected
        first.observe(trees)
        resumed.observe(trees)
        assert resumed.metrics() == first.metrics()
