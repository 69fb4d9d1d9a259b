"""Regular expressions: an answer is correct when an expression matches it, in time linear in its length."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.types import Task
from lyceum.reward._in_worker import InWorker, cell
from lyceum.reward._re2 import compiled


class RegexReward(InWorker):
    """1 where a regular expression matches the extracted answer, else 0.

    The engine is RE2, which has no look-around and no back-references, and takes time linear in the answer's length:
    no expression can hang it. ``.`` does not match a line break, and ``$`` is the end of the text, unless the
    expression says otherwise (``(?s)``, ``(?m)``).

    Resists: catastrophic expressions and answers, by the engine. Does not resist, under ``match: search``: an answer
    that lists everything it could be; there, extract it from a box or tags and match it whole.
    """

    factory: ClassVar[str] = "lyceum.reward._re2:checker"

    kind: Literal["regex"] = "regex"
    pattern: str | None = Field(None, min_length=1)
    """The expression; null takes each task's column ``column``."""
    column: str = Field("pattern", min_length=1)
    """Column of the expression, where ``pattern`` is null."""
    match: Literal["full", "search"] = "full"
    """Whether it must match the whole answer, or something in it."""
    case: bool = True
    """Whether it is case-sensitive."""

    @field_validator("pattern")
    @classmethod
    def _is_an_expression(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            compiled(pattern, case=True)
        return pattern

    @property
    def reads(self) -> str | None:
        return self.column if self.pattern is None else None

    def worker_settings(self) -> dict[str, Any]:
        return {"whole": self.match == "full", "case": self.case}

    def job(self, task: Task, found: str) -> dict[str, Any]:
        pattern = self.pattern if self.pattern is not None else cell(task, self.column, "a regular expression")
        if not isinstance(pattern, str):
            raise ValueError(f"column {self.column!r} of task {task.id!r} holds no text; allowed: a regular expression")
        return {"pattern": pattern, "found": found}
