"""Default behaviour of a task source: hints and solutions come from the tasks' columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lyceum.core.solution import Solution, written_solution
from lyceum.core.types import Grader, Hint, Task
from lyceum.tasks.prompt import with_hint_below


class Source:
    """A source adds ``__len__``, ``__getitem__`` and ``grader``."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Task:
        raise NotImplementedError

    def grader(self) -> Grader:
        raise NotImplementedError

    def row(self, index: int) -> Mapping[str, Any] | None:
        return None

    def imitated(self, task: Task) -> str | None:
        text = task.columns.get("demonstration")
        return text if isinstance(text, str) else None

    def hinted(self, task: Task, hint: Hint) -> Task:
        return with_hint_below(task, hint)

    def solution(self, task: Task) -> Solution | None:
        return written_solution(task)
