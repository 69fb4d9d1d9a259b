"""What ends a command and is no mistake of the program. Nothing heavy is imported to tell of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class RunError(RuntimeError):
    """Something went wrong while a command ran; its lines tell what, and a traceback would add nothing."""

    exit_code: ClassVar[int] = 1

    def __init__(self, lines: str | Iterable[str]) -> None:
        self.lines = [lines] if isinstance(lines, str) else list(lines)
        super().__init__("\n".join(self.lines))
