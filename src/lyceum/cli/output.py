"""A command's output: tables for people, or one JSON document."""

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
    """Give the command its output. Under ``--json`` all other prints (a user's reward) go to standard error."""
    output = Output(as_json)
    with _all_to_standard_error() if as_json else contextlib.nullcontext():
        yield output
    output.close()


@contextlib.contextmanager
def _all_to_standard_error() -> Iterator[None]:
    """Redirect Python's standard output and its file descriptor, which child processes write to."""
    if sys.stdout is not None:  # None if the parent process closed it
        sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
        except OSError:  # closed: no child process can write there either
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
        # Read sys.stdout each time, since tests and notebooks replace it.
        self.console = Console(file=sys.stdout)

    @property
    def progress(self) -> Any:
        return "silent" if self.as_json else "auto"

    def json(self, document: Any) -> None:
        """Set the document that is printed when the command is done; nothing without ``--json``."""
        if self.as_json:
            self._document = [document]

    def close(self) -> None:
        for document in self._document:
            print(to_json(document, indent=2, other=str))

    def show(self, *parts: Any) -> None:
        """Print tables and lines; nothing under ``--json``."""
        if not self.as_json:
            for part in parts:
                self.console.print(Text(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))
