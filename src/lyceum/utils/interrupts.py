"""Ctrl-C asks a run to stop after its step, and a second one stops it now."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from lyceum.utils import progress

AGAIN_AFTER = 0.05
"""Seconds after which a Ctrl-C that came during an import is tried again."""


@contextlib.contextmanager
def imports_whole() -> Iterator[None]:
    """While entered, a Ctrl-C that comes during an import takes effect after it.

    Half of torch or of transformers cannot be imported again, so that no later call in the same notebook would work.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def after_imports(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            again = threading.Timer(AGAIN_AFTER, signal.pthread_kill, (threading.main_thread().ident, number))
            again.daemon = True
            again.start()
        else:
            before(number, frame)

    signal.signal(signal.SIGINT, after_imports)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """While entered, the first SIGINT or SIGTERM is remembered and the second raises KeyboardInterrupt.

    ::

        with Interrupts() as interrupts:
            while step < steps and not interrupts.interrupted():
                ...

    A signal that was ignored before (``nohup``) stays ignored. Only a main thread gets signals: in any other thread
    nothing changes and nothing interrupts.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def interrupted(self) -> bool:
        """Whether the loop should end before its next step."""
        return self.received is not None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            # None: installed by something that is not Python, and cannot be restored from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        told = progress.stopping()
        # Not print: the signal may have come in the middle of one, which is not reentrant.
        with contextlib.suppress(OSError):  # closed: there is no reader, and the step should still finish
            os.write(2, told.encode())
