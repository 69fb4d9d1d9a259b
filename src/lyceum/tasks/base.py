"""Default behaviour of a task source: hints and solutions come from the tasks' columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from lyceum.core.notes import Note
from lyceum.core.solution import Solution, written_solution
from lyceum.core.types import Grader, Hint, Split, Task
from lyceum.tasks._split import check_index
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


class _Generator(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def size(self) -> int: ...


_Settings = TypeVar("_Settings", bound=_Generator)


class GeneratedSource(Source, Generic[_Settings]):
    """``source[i]`` depends on (seed, split, i) alone. A source adds ``__getitem__`` and ``grader``."""

    def __init__(self, settings: _Settings, split: Split, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.split: Split = split

    def __len__(self) -> int:
        return self.settings.size

    def key(self, index: int) -> str:
        """All that a task depends on beside the settings.

        Raises:
            IndexError: outside 0 .. size - 1, which also ends a ``for`` loop over the source.
        """
        check_index(self.settings.kind, index, len(self))
        return f"{self.settings.kind}/{self.split}/{self.seed}/{index}"
