"""Default behaviour of a task source: hints and solutions come from the tasks' columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lyceum.core.notes import Note
from lyceum.core.solution import Solution, written_solution
from lyceum.core.types import Grader, Hint, Task
from lyceum.tasks.prompt import with_hint_below


@dataclass(frozen=True)
class HintsLeak(Note):
    """Whether the source's own hints reveal the answer of a task. Written by sources, read by guides, which without it
    search the hints for the answer's text."""

    kind: ClassVar[str] = "hints-leak"
    leak: bool


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
