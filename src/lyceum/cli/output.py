"""A command's output: tables for people, or one JSON document."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from lyceum.utils.numbers import to_json
from lyceum.utils.progress import Console


@contextlib.contextmanager
def printing(as_json: bool) -> Iterator[Output]:
    """Give the command its output. Under ``--json`` all other prints (a user's reward) go to standard error."""
    output = Output(as_json)
    with _all_to_standard_error() if as_json else contextlib.nullcontext() as kept:
        output.descriptor = kept
        yield output
    output.close()


@contextlib.contextmanager
def _all_to_standard_error() -> Iterator[int | None]:
    """Redirect Python's standard output and its file descriptor, which child processes write to; gives the
    descriptor under which it is kept."""
    if sys.stdout is not None:  # None if the parent process closed it
        sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
        except OSError:  # closed: no child process can write there either
            yield None
            return
        try:
            os.dup2(2, 1)
            yield kept
        finally:
            os.dup2(kept, 1)
            os.close(kept)


class Output:
    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.descriptor: int | None = None
        """Where standard output is kept while all else goes to standard error."""
        self._stdout = sys.stdout
        self._document: list[Any] = []
        # Read sys.stdout each time, since tests and notebooks replace it.
        self.console = Console(file=sys.stdout)

    @property
    def progress(self) -> Any:
        return "json" if self.as_json else "auto"

    def json(self, document: Any) -> None:
        """Set the document that is printed when the command is done; nothing without ``--json``."""
        if self.as_json:
            self._document = [document]

    def line(self, document: Any) -> None:
        """Write a line of JSON now; nothing without ``--json``. What a reader that has gone would get is dropped.

        Raises:
            OSError: it could not be written (a full disk).
        """
        if not self.as_json or self._stdout is None:
            return
        text = to_json(document) + "\n"
        try:
            is_process_output = self._stdout.fileno() == 1
        except (OSError, ValueError):  # a test's or a notebook's own
            is_process_output = False
        if self.descriptor is None or not is_process_output:
            self._stdout.write(text)
            return
        left = memoryview(text.encode())
        try:
            while left:
                left = left[os.write(self.descriptor, left) :]
        except BrokenPipeError:
            self._stdout = None

    def close(self) -> None:
        for document in self._document:
            print(to_json(document, indent=2, other=str))

    def show(self, *parts: Any) -> None:
        """Print tables and lines; nothing under ``--json``."""
        if not self.as_json:
            for part in parts:
                self.console.print(Text(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))


def listing(*heads: str) -> Table:
    """A table without lines, whose cells are wrapped."""
    table = Table(show_edge=False, pad_edge=False, box=None, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    return table
