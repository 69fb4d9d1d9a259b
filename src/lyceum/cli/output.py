"""Where a command writes: tables for people, or one JSON document."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import Console


@contextlib.contextmanager
def printing(as_json: bool) -> Iterator[Output]:
    """Give the command its output. Under ``--json`` whatever else prints (a user's reward) goes to standard error."""
    output = Output(as_json)
    with _all_to_standard_error() if as_json else contextlib.nullcontext():
        yield output
    output.close()


@contextlib.contextmanager
def _all_to_standard_error() -> Iterator[None]:
    """Python's standard output, and the descriptor below it: a child process does not ask Python where to write."""
    if sys.stdout is not None:  # closed by whoever started the process
        sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
        except OSError:  # closed, so that no child can write there either
            yield
            return
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


class Output:
    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._document: list[Any] = []
        # Asked of the stream each time, since tests and notebooks replace it.
        self.console = Console(file=sys.stdout)

    @property
    def progress(self) -> Any:
        return "silent" if self.as_json else "auto"

    def json(self, document: Any) -> None:
        """The document, printed once the command has nothing else to do; nothing where people read."""
        if self.as_json:
            self._document = [document]

    def close(self) -> None:
        for document in self._document:
            print(to_json(document, indent=2, other=str))

    def show(self, *parts: Any) -> None:
        """Tables and lines; nothing under ``--json``."""
        if not self.as_json:
            for part in parts:
                self.console.print(Text(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))
