"""The process in which a slow or hostile verifier runs: ``python -m lyceum.reward._worker``, see ``worker_process``.

Messages are a length and JSON, never pickle: replies were computed from a model's text. The first message names a
factory and its settings; every further one is a job with its time limit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import struct
import sys
from pathlib import Path
from typing import IO, Any

from lyceum.utils.errors import GraderLost
from lyceum.utils.tracebacks import exit_in_words, user_traceback

LENGTH = struct.Struct(">Q")

MOST_BYTES = 1 << 23
"""Maximum size of a reply's JSON: far more than any grade; a longer one is an error, and no memory is reserved."""

START_SECONDS = 120.0
"""Time limit for a process to start: its imports can be heavy and the machine busy."""

_HOME = str(Path(__file__).parents[2])

_LONGEST_ALARM = 1e9
"""Seconds (thirty years); systems refuse longer alarms."""


def pack(message: Any) -> bytes:
    """A message as bytes to send. Raises TypeError and other errors where JSON cannot hold it."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def receive(stream: IO[bytes]) -> bytes:
    """The next message's JSON. Raises EOFError where the other side is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError("no further message")
    size = LENGTH.unpack(head)[0]
    body = stream.read(size)
    if len(body) < size:
        raise EOFError(f"a message of {size} bytes ended after {len(body)}")
    return body


def main() -> None:
    # The terminal's Ctrl-C does not reach it; a signal that a service manager sends to all processes is left to the
    # run, which ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with(int(sys.argv[1]))
    jobs, results = _own_streams()
    try:
        _serve(jobs, results)
    except (EOFError, BrokenPipeError):  # the run has no further job, or has ended
        return


def _serve(jobs: IO[bytes], results: IO[bytes]) -> None:
    start = json.loads(receive(jobs))
    _alarm(start["seconds"] + 1)
    if start["path"] is not None:
        sys.path[:] = start["path"]
    else:  # an interpreter with packages of its own, which the package's folder may hold as well
        sys.path.sort(key=lambda entry: entry == _HOME)
    try:
        module, _, name = start["factory"].partition(":")
        work = getattr(importlib.import_module(module), name)(**start["settings"])
        _limit_memory(start["memory_mb"])
    except Exception as error:
        _send(results, pack({"error": _text(error)}))
        return
    _alarm(0)
    _send(results, pack({"result": "ready"}))
    while True:
        received = receive(jobs)
        try:
            message = json.loads(received)
            _alarm(message["timeout_seconds"] + 1)
            reply = pack({"result": work(message["job"])})
            if len(reply) > MOST_BYTES:
                raise ValueError(f"a result of {len(reply)} bytes; allowed: less than {MOST_BYTES}")
        except SystemExit as error:  # of a user's function; the process is as good as before
            reply = pack({"error": exit_in_words(error), "traceback": user_traceback(error)})
        except GraderLost as error:
            reply = pack({"lost": str(error)})
        except Exception as error:
            reply = pack({"error": _text(error), "traceback": user_traceback(error)})
        _alarm(0)
        _send(results, reply)


def _send(results: IO[bytes], reply: bytes) -> None:
    results.write(reply)
    results.flush()


def _end_with(pipe: int) -> None:
    """Have the system kill this process and its children once the run, which holds the pipe's other end, has ended.

    This works however the run ended, and if this process is stopped or in a long computation. A process that leaves
    its group, and one on another system, is still ended by the end of its jobs and by its alarm.
    """
    if not sys.platform.startswith("linux"):
        return
    import fcntl

    # A sandbox may not support this signal of a pipe; then the alarm is left, as on other systems.
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # the run had already ended
        sys.exit()


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes to the pool; in a verifier, ``print`` then writes to stderr and ``input`` reads nothing."""
    jobs, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    return jobs, results


def _alarm(seconds: float) -> None:
    """Have the system end this process after that time: the pool does it too, but may itself have ended by then.

    Uses the default action of the signal, as a Python handler would wait for a long power to be computed.
    """
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, min(seconds, _LONGEST_ALARM))


def _limit_memory(megabytes: int | None) -> None:
    """Let this process allocate this much more than it has now; past it, an allocation raises MemoryError."""
    if megabytes is None or not sys.platform.startswith("linux"):
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


if __name__ == "__main__":
    main()
