"""What curricula share: tasks by category, and curricula that change what another one draws."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lyceum.core.component import require_keys
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.levels import level_order
from lyceum.utils.numbers import mean

LOOKED_AT = 1000
"""Tasks of a generator that are read to learn which categories there are; of a dataset all are."""

_NO_NAMES = ("", "nan", "NaN")


def require_same_tasks(saved: int, source: TaskSource) -> None:
    """Raise RecipeError where a saved curriculum was drawing from another number of tasks."""
    if saved != len(source):
        raise RecipeError(
            f"tasks: got {len(source)} tasks, but the saved run had {saved}; "
            "allowed: the tasks that the run began with, or a new run"
        )


@lru_cache(maxsize=2)  # one epoch at a time, or two where a draw crosses from one into the next
def epoch_order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The order of an epoch's tasks: every index once."""
    return np.random.default_rng([seed, epoch]).permutation(size)


def category_of(task: Task, by: str) -> str:
    """The task's category as text: a column's value, or where the task came from for ``provenance``.

    Raises:
        RecipeError: no such column, or a value that names nothing (nan, null, an empty text).
    """
    value = task.provenance if by == "provenance" else task.columns.get(by)
    # A text "nan" is what a table without a value becomes on its way through CSV.
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or str(value).strip() in _NO_NAMES:
        columns = ", ".join(["provenance", *task.columns])
        raise RecipeError(
            f"curriculum.by: task {task.id!r} has {value!r} in column {by!r}{nearest(by, task.columns)}; "
            f"allowed: a column with a value in every task; there are {columns}"
        )
    return str(value)


def categories_of(source: TaskSource, by: str) -> list[str]:
    """The categories of a source's tasks, by level.

    Raises:
        RecipeError: a task has no value in that column, or one that names nothing.
    """
    # A dataset may be sorted by level, and may lack a value far down.
    return sorted({category_of(source[i], by) for i in source.looked_at(LOOKED_AT)}, key=level_order)


def success(tree: Tree) -> float | None:
    """The share of a tree's answers that are right without help, or their mean outcome where no grader says; None
    where nothing was graded, or all had help."""
    if tree.solved_unaided is not None:
        return tree.solved_unaided
    outcomes = [leaf.grade.outcome for leaf in tree.unaided if leaf.grade and leaf.grade.outcome is not None]
    return mean(outcomes) if outcomes else None


class TasksByCategory:
    """Tasks of the category that is asked for, each task once an epoch, in an order of its own for each epoch.

    The source is walked once for all categories: what is passed on the way waits in its category's queue.

    Args:
        by: column that names a task's category, or ``provenance``.
    """

    def __init__(self, source: TaskSource, *, by: str, seed: int) -> None:
        if not len(source):
            raise RecipeError("tasks: got an empty source; allowed: at least one task")
        self.source, self.by, self.seed = source, by, seed
        self.position = 0
        self.waiting: dict[str, deque[int]] = {name: deque() for name in categories_of(source, by)}

    @property
    def names(self) -> list[str]:
        return list(self.waiting)

    def take(self, category: str) -> Task:
        queue = self.waiting[category]
        while not queue:
            epoch, place = divmod(self.position, len(self.source))
            index = int(epoch_order(self.seed, epoch, len(self.source))[place])
            self.position += 1
            # A category that was not among the first tasks is never asked for, and its tasks are passed by.
            other = self.waiting.get(category_of(self.source[index], self.by))
            if other is not None:
                other.append(index)
        return self.source[queue.popleft()]

    def state_dict(self) -> dict[str, Any]:
        waiting = {name: list(queue) for name, queue in self.waiting.items()}
        return {"seed": self.seed, "tasks": len(self.source), "position": self.position, "waiting": waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum", given=state, needed=self.state_dict())
        require_same_tasks(state["tasks"], self.source)
        self.seed, self.position = int(state["seed"]), int(state["position"])
        self.waiting = {name: deque(queue) for name, queue in state["waiting"].items()}


class Around:
    """A curriculum around another one: everything is the inner one's but for what a subclass changes."""

    def __init__(self, inner: Curriculum) -> None:
        self.inner = inner

    def draw(self, n: int) -> list[Task]:
        return self.inner.draw(n)

    def observe(self, trees: Sequence[Tree]) -> None:
        self.inner.observe(trees)

    def weight(self, tree: Tree) -> float:
        return self.inner.weight(tree)

    def metrics(self) -> dict[str, float]:
        return self.inner.metrics()

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum", given=state, needed=self.state_dict())
        self.inner.load_state_dict(state["inner"])
