"""Standard output and error of a command: work continues when the reader closes, and output is plain text."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

from lyceum.utils.terminal import printable


class Outlet(io.RawIOBase):
    """A raw stream that may lose its reader or its disk: later writes are discarded.

    Attributes:
        lost: the first error; None while all was written.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.name = raw.name
        self.lost: OSError | None = None

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._raw.isatty()

    def fileno(self) -> int:
        return self._raw.fileno()

    def write(self, data: Any, /) -> int | None:
        try:
            return self._raw.write(data)
        except OSError as error:
            self.lost = error
            # Redirect the descriptor, not only Python's stream: children and libraries write there too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes

    @property
    def failed(self) -> OSError | None:
        """The error; None if all was written, or if the reader closed the pipe (``| head``)."""
        return None if isinstance(self.lost, BrokenPipeError) else self.lost


def hold() -> Outlet | None:
    """Replace this process's standard streams by ones that accept every write, in any encoding.

    Returns:
        The outlet of standard output; None if the parent process closed it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next opened file would get its number, and the terminal's output
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stderr, _ = _held(sys.stderr, sys.__stderr__)
    sys.stdout, outlet = _held(sys.stdout, sys.__stdout__)
    return outlet


def _held(stream: Any, original: Any) -> tuple[Any, Outlet | None]:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8"), None
    if stream is not original:  # replaced by other code: leave it
        return stream, None
    stream.flush()
    outlet = Outlet(getattr(stream.buffer, "raw", stream.buffer))
    text = io.TextIOWrapper(
        outlet if stream.write_through else io.BufferedWriter(outlet),  # pyright: ignore[reportArgumentType]
        encoding=stream.encoding,
        errors="backslashreplace",  # for what an encoding cannot represent, such as half a surrogate pair
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    return text, outlet


@contextlib.contextmanager
def plain_messages() -> Iterator[None]:
    """Warnings and log records of all libraries as printable text, one line per warning."""
    make_record = logging.getLogRecordFactory()
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        logging.setLogRecordFactory(_PlainRecord)
        try:
            yield
        finally:
            logging.setLogRecordFactory(make_record)


def _warn(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None) -> None:
    print(f"warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)


class _PlainRecord(logging.LogRecord):
    """Formats in the record, since the handlers are the libraries' own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = printable("".join(traceback.format_exception(*self.exc_info)).rstrip())

    def getMessage(self) -> str:
        return printable(super().getMessage())
