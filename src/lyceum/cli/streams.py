"""Standard output and error of a command: work does not end because nobody reads, and what is read is plain text."""

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
    """The bytes of a stream that may lose its reader or its disk: what is written from then on goes nowhere.

    Attributes:
        lost: what was raised first; None while all was written.
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
            # The descriptor and not Python alone: children and libraries write there too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes

    @property
    def failed(self) -> OSError | None:
        """What went wrong; None where all was written, or whoever read had enough (``| head``)."""
        return None if isinstance(self.lost, BrokenPipeError) else self.lost


def hold() -> Outlet | None:
    """Make this process's standard streams ones that always take what is written, in any encoding.

    Returns:
        Where standard output goes to; None where whoever started the process closed it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file that is opened would get its number, and what is meant for a terminal
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stderr, _ = _held(sys.stderr, sys.__stderr__)
    sys.stdout, outlet = _held(sys.stdout, sys.__stdout__)
    return outlet


def _held(stream: Any, original: Any) -> tuple[Any, Outlet | None]:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8"), None
    if stream is not original:  # somebody's own, who knows why
        return stream, None
    stream.flush()
    outlet = Outlet(getattr(stream.buffer, "raw", stream.buffer))
    text = io.TextIOWrapper(
        outlet if stream.write_through else io.BufferedWriter(outlet),  # pyright: ignore[reportArgumentType]
        encoding=stream.encoding,
        errors="backslashreplace",  # what an encoding cannot say, halves of surrogate pairs above all
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    return text, outlet


@contextlib.contextmanager
def plain_messages() -> Iterator[None]:
    """Warnings and the log records of all libraries as printable text, warnings as one line each."""
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
    """Handlers are the libraries' own, so that the record is the one place for all of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = printable("".join(traceback.format_exception(*self.exc_info)).rstrip())

    def getMessage(self) -> str:
        return printable(super().getMessage())
