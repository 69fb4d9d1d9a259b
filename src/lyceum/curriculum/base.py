"""What curricula share: tasks by category, and curricula that wrap another one."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np
from jaxtyping import Float

from lyceum.core.component import require_keys
from lyceum.core.notes import Note
from lyceum.core.settings import Composition
from lyceum.core.sources import Reproducible, checked_tasks
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, EndingCurriculum, Task, TaskSource
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.numbers import level_order, mean

LOOKED_AT = 1000
"""Number of a generator's tasks read to find its categories; of a dataset all are."""

_NO_NAMES = ("", "nan", "NaN")


@dataclass(frozen=True)
class OnlyTested(Note):
    """The task's samples measure its difficulty and are not trained on. Written and read by curricula that test tasks,
    read by guides, which help none of these."""

    kind: ClassVar[str] = "test-only"


def to_test(task: Task, samples: int) -> Task:
    """The task, to be sampled this often and not trained on."""
    return replace(task, samples=samples).with_note(OnlyTested())


def is_test(task: Task) -> bool:
    """Whether the task's samples are not trained on."""
    return task.note(OnlyTested) is not None


def require_same_tasks(saved: int, source: TaskSource) -> None:
    """Raise RecipeError where a saved curriculum drew from another number of tasks."""
    if saved != len(source):
        raise RecipeError(
            f"tasks: got {len(source)} tasks, but the saved run had {saved}; "
            "allowed: as many as the run began with, or a new run"
        )


@lru_cache(maxsize=2)  # one epoch at a time, or two where a draw crosses an epoch's end
def epoch_order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The order of an epoch's tasks: a permutation."""
    return np.random.default_rng([seed, epoch]).permutation(size)


def task_index(seed: int, position: int, size: int) -> int:
    """The task at a position of a source's endless order, in which each epoch has its own."""
    epoch, place = divmod(position, size)
    return int(epoch_order(seed, epoch, size)[place])


def require_tasks(source: TaskSource) -> None:
    """Raise RecipeError where there is nothing to draw from."""
    if not len(source):
        raise RecipeError("tasks: got an empty source; allowed: at least one task")


def category_of(task: Task, by: str) -> str:
    """The task's category as text: a column's value, or the task's origin for ``provenance``.

    Raises:
        RecipeError: no such column, or a missing value (nan, null, an empty text).
    """
    value = task.provenance if by == "provenance" else task.columns.get(by)
    # A missing value of a table becomes the text "nan" in CSV.
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
        RecipeError: a task has no value in that column.
    """
    # A thousand drawn pictures or mazes take a second, and each stage asks when it is checked and when it is built.
    key = source.tasks_key if isinstance(source, Reproducible) else None
    return list(_categories(source, by) if key is None else _known_categories(_Known(key, source), by))


@dataclass(frozen=True)
class _Known:
    key: Hashable
    source: TaskSource = field(compare=False)


@lru_cache(maxsize=64)
def _known_categories(known: _Known, by: str) -> list[str]:
    return _categories(known.source, by)


def _categories(source: TaskSource, by: str) -> list[str]:
    # A dataset may be sorted by level, and may lack a value far down.
    return sorted({category_of(source[i], by) for i in checked_tasks(source, LOOKED_AT)}, key=level_order)


def samples_as_in(stage: Composition, samples: int) -> list[str]:
    """A line where a curriculum that shares out a step's rollouts has another mean per task than the rollout."""
    if stage.trajectories == samples:
        return []
    given = "none" if stage.trajectories is None else stage.trajectories
    return [
        f"curriculum.samples: got {samples}, but {stage.trajectories_key} is {given}; allowed: the same number in both"
    ]


def success(tree: Tree) -> float | None:
    """Accuracy of a tree's answers without help, or their mean outcome where no grader judges; None
    where nothing was graded, or all had help."""
    if tree.solved_unaided is not None:
        return tree.solved_unaided
    outcomes = [leaf.grade.outcome for leaf in tree.unaided if leaf.grade and leaf.grade.outcome is not None]
    return mean(outcomes) if outcomes else None


def without_replacement(log_weight: Float[np.ndarray, " k"], n: int, rng: np.random.Generator) -> list[int]:
    """Up to n different indices, one after another, each drawn by the weights of those that are left.

    The n largest of log weight + Gumbel noise are such a draw, and no weight underflows.
    """
    noisy = log_weight + rng.gumbel(size=len(log_weight))
    return [int(index) for index in np.argsort(-noisy, kind="stable")[:n]]


class Unweighted:
    """A curriculum that uses no outcomes and gives every tree the same weight, as far as a subclass does not."""

    def observe(self, trees: Sequence[Tree]) -> None:
        """Outcomes are not used."""

    def weight(self, tree: Tree) -> float:
        return 1.0

    def metrics(self) -> dict[str, float]:
        return {}


class FromSource(Unweighted):
    """A curriculum that draws from a source: its tasks, its metrics, and its state.

    A subclass whose state holds other values than numbers, texts, lists and dicts of these adds them in its own
    ``state_dict`` and ``load_state_dict``.
    """

    kept: ClassVar[tuple[str, ...]]
    """Names of the attributes that are its state, beside the seed."""

    def __init__(self, source: TaskSource, *, seed: int) -> None:
        require_tasks(source)
        self.source, self.seed = source, seed
        self._metrics: dict[str, float] = {}

    def metrics(self) -> dict[str, float]:
        return self._metrics

    def state_dict(self) -> dict[str, Any]:
        own = {name: copy.copy(getattr(self, name)) for name in self.kept}
        return {"seed": self.seed, "tasks": len(self.source), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum", given=state, needed=self.state_dict())
        require_same_tasks(state["tasks"], self.source)
        self.seed = int(state["seed"])
        for name in self.kept:
            setattr(self, name, type(getattr(self, name))(state[name]))


class TasksByCategory:
    """Tasks of a requested category, each task once per epoch, in a new order for each epoch.

    The source is read once for all categories: skipped tasks wait in their category's queue.

    Args:
        by: column that names a task's category, or ``provenance``.
    """

    def __init__(self, source: TaskSource, *, by: str, seed: int) -> None:
        require_tasks(source)
        self.source, self.by, self.seed = source, by, seed
        self.position = 0
        self.waiting: dict[str, deque[int]] = {name: deque() for name in categories_of(source, by)}

    @property
    def names(self) -> list[str]:
        return list(self.waiting)

    def take(self, category: str) -> Task:
        queue = self.waiting[category]
        while not queue:
            index = task_index(self.seed, self.position, len(self.source))
            self.position += 1
            # A category that was not among the first tasks is never requested, and its tasks are skipped.
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
    """A curriculum that wraps another one: it delegates everything that a subclass does not override."""

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

    @property
    def done(self) -> str:
        """Of the inner one, which is asked only where its settings say that it has an end."""
        return cast(EndingCurriculum, self.inner).done

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum", given=state, needed=self.state_dict())
        self.inner.load_state_dict(state["inner"])
