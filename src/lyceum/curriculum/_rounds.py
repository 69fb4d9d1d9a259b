"""What curricula share that test tasks first: a round samples them untrained, and then draws them for training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lyceum.core.tree import Tree
from lyceum.core.types import Task, TaskSource
from lyceum.curriculum.base import FromSource, is_test, success, task_index, to_test


@dataclass(frozen=True)
class Tested:
    """What the samples of a task's test said.

    Attributes:
        index: the task's, in its source.
        solved: number of correct samples; of graded rewards without a verdict, their sum, each within 0 .. 1.
        samples: number of graded samples.
    """

    index: int
    solved: float
    samples: int

    @property
    def accuracy(self) -> float:
        return self.solved / self.samples


class TestedRounds(FromSource):
    """Rounds of ``pool`` tasks, in whole steps. The samples of the tests count among the sampled tokens.

    A subclass chooses from what was tested. Draws are functions of its state alone: the position in the source, the
    tests still to be drawn or observed, and what they have said so far.
    """

    kept = ("round", "position", "untested", "testing")

    def __init__(self, source: TaskSource, *, pool: int, tests: int, seed: int) -> None:
        super().__init__(source, seed=seed)
        self.pool, self.tests = pool, tests
        self.position = self.round = 0
        self.untested = pool
        self.testing: dict[str, int] = {}
        self.tested: list[Tested] = []

    def index_at(self, position: int) -> int:
        """The task at a position of the source's endless order."""
        return task_index(self.seed, position, len(self.source))

    def begin(self, tested: list[Tested]) -> None:
        """All of the round's tests that could be graded, in the order in which they were observed; at least one."""
        raise NotImplementedError

    def train(self, n: int) -> list[Task]:
        """The next tasks to train on, fewer than n at the end of the round."""
        raise NotImplementedError

    def learn(self, trees: Sequence[Tree]) -> None:
        """Outcomes of tasks that were trained on."""

    def draw(self, n: int) -> list[Task]:
        tasks = [] if self.untested > 0 else self.train(n)
        if len(tasks) < n:
            if self.untested <= 0:
                self.round, self.untested = self.round + 1, self.pool
            tasks += self._tests(n - len(tasks))
        return tasks

    def _tests(self, n: int) -> list[Task]:
        indices = [self.index_at(position) for position in range(self.position, self.position + n)]
        self.position, self.untested = self.position + n, self.untested - n
        tasks = [to_test(self.source[index], self.tests) for index in indices]
        self.testing |= {task.id: index for task, index in zip(tasks, indices, strict=True)}
        return tasks

    def observe(self, trees: Sequence[Tree]) -> None:
        tests = [tree for tree in trees if is_test(tree.task)]
        for tree in tests:
            index, accuracy = self.testing.pop(tree.task.id, None), success(tree)
            if index is not None and accuracy is not None:  # a task that is drawn twice in a round counts once
                samples = len(tree.unaided)
                self.tested.append(Tested(index, min(max(accuracy, 0.0), 1.0) * samples, samples))
        self.learn([tree for tree in trees if not is_test(tree.task)])
        self._metrics = {
            "round": float(self.round),
            "tested/tasks": float(len(tests)),
            "tested/tokens": float(sum(tree.sampled_tokens for tree in tests)),
        }
        if self.tested and self.untested <= 0:
            self.begin(self.tested)
            self.tested = []

    def weight(self, tree: Tree) -> float:
        return 0.0 if is_test(tree.task) else 1.0

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"tested": [[each.index, each.solved, each.samples] for each in self.tested]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.tested = [Tested(int(index), float(solved), int(samples)) for index, solved, samples in state["tested"]]
