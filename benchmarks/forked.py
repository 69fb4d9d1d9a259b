"""Processes that begin with what this one has imported: a fork in the place of a new interpreter.

Importing torch and transformers takes seconds of a core, a run of a tiny model less. A fork has no threads but its own,
so a process forks others while it computes on one thread.
"""

from __future__ import annotations

import importlib
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import IO, Any


class Forked:
    """A process that calls a function and ends, with the part of ``subprocess.Popen`` that is used of it.

    Args:
        out: where it writes, errors too.
        keep: open files that it has; all others are closed. None: it has all, as a process that forks others needs
            them (pyarrow closes a pipe of its own as it is forked).
    """

    def __init__(self, call: Callable[[], object], out: IO[bytes], keep: Sequence[int] | None = ()) -> None:
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            os.setsid()
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            begin = 3
            for number in () if keep is None else [*sorted(keep), 1 << 16]:
                os.closerange(begin, number)
                begin = number + 1
            call()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None and self._wait(0) is None:
            raise ChildProcessError(self.pid)
        until = time.monotonic() + (timeout or 0)
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("fork", timeout or 0)
            time.sleep(0.02)
        assert self.returncode is not None
        return self.returncode

    def _wait(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _worker(module: str, served: socket.socket, said: IO[bytes], **_: Any) -> Forked:
    def serve() -> None:
        sys.argv = ["worker", str(served.fileno())]
        importlib.import_module(module).main()

    process = Forked(serve, said, keep=[served.fileno()])
    served.close()
    return process


def _command(command: Sequence[str], *, stdout: IO[bytes], env: Mapping[str, str], **_: Any) -> Forked:
    """Python with these words, as ``subprocess.Popen(..., stdin=subprocess.PIPE)`` starts it."""
    read, write = os.pipe()

    def run() -> None:
        os.dup2(read, 0)
        sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)  # a test's are files that are closed
        os.environ.clear()
        os.environ.update(env)
        as_module, sys.argv = command[1] == "-m", [*command[1:]]
        try:
            if as_module:
                del sys.argv[0]
                runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise

    process = Forked(run, stdout, keep=[read])
    os.close(read)
    process.stdin = os.fdopen(write, "wb")
    return process


@contextmanager
def forked_workers() -> Any:
    """Let a run's workers, and the other processes of its learner, be forks of it."""
    from lyceum.learner import _processes as of_learner
    from lyceum.runtime import _worker as workers

    popen = SimpleNamespace(Popen=_command, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    usual, workers.start_module = workers.start_module, _worker  # type: ignore[assignment]
    of_learner.subprocess = popen  # type: ignore[assignment]
    try:
        yield
    finally:
        workers.start_module, of_learner.subprocess = usual, subprocess
