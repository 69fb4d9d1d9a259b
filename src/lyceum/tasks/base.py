"""Default behaviour of a task source: hints and solutions come from the tasks' columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt

from lyceum.core.rubric import Criterion, listed
from lyceum.core.solution import Solution, written_solution
from lyceum.core.types import Grader, Hint, JudgedStep, LeftOut, Message, PromptReader, Task, TaskSource
from lyceum.tasks.prompt import with_hint_below


class Source:
    """A source adds ``__len__``, ``__getitem__`` and ``grader``."""

    conversational: bool = False
    rubric_in_order: bool = False
    judges_steps: bool = False
    gradable: bool = True
    left_out: LeftOut = LeftOut()

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Task:
        raise NotImplementedError

    def looked_at(self, n: int) -> range:
        return range(min(len(self), n))

    def row(self, index: int) -> Mapping[str, Any] | None:
        return None

    @property
    def problems(self) -> UInt[np.ndarray, " task"]:
        return np.zeros(0, np.uint64)

    def without(self, problems: UInt[np.ndarray, " other"]) -> TaskSource:
        return self

    def fitted(self, prompts: PromptReader) -> TaskSource:
        return self

    def imitated(self, task: Task) -> str | None:
        text = task.columns.get("demonstration")
        return text if isinstance(text, str) else None

    def grader(self) -> Grader:
        raise NotImplementedError

    def hinted(self, task: Task, hint: Hint) -> Task:
        return with_hint_below(task, hint)

    def reordered(self, task: Task, order: Sequence[int]) -> Sequence[Message] | None:
        return None

    def solution(self, task: Task) -> Solution | None:
        return written_solution(task)

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        return ()

    def rubric_hint(self, task: Task, criteria: Sequence[Criterion]) -> Hint:
        return listed(criteria)
