"""The process in which a slow or hostile verifier runs: ``python -m lyceum.reward.worker``, started by ``pool``.

Messages are a length and JSON, never pickle: what comes back was computed from a model's text. The first names a
factory and its settings; every further one is a job.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import IO, Any

LENGTH = struct.Struct(">Q")


def send(stream: IO[bytes], message: Any) -> None:
    body = json.dumps(message).encode()
    stream.write(LENGTH.pack(len(body)) + body)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message. Raises EOFError where the other side is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError("no further message")
    size = LENGTH.unpack(head)[0]
    body = stream.read(size)
    if len(body) < size:
        raise EOFError(f"a message of {size} bytes ended after {len(body)}")
    return json.loads(body)


def main() -> None:
    jobs, results = _own_streams()
    start = receive(jobs)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which ends its workers itself
    sys.path[:] = start["path"]
    try:
        module, _, name = start["factory"].partition(":")
        work = getattr(importlib.import_module(module), name)(**start["settings"])
        _limit_memory(start["memory_mb"])
    except Exception as error:
        send(results, {"error": _text(error)})
        return
    send(results, {"result": "ready"})
    while True:
        try:
            job = receive(jobs)
        except EOFError:
            return
        _alarm(start["timeout_seconds"] + 1)
        try:
            reply = {"result": work(job)}
            json.dumps(reply)
        except Exception as error:
            reply = {"error": _text(error)}
        _alarm(0)
        send(results, reply)


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes to the pool, out of reach of ``print`` and ``input`` in a verifier, which go to stderr and nowhere."""
    jobs, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return jobs, results


def _alarm(seconds: float) -> None:
    """Have the system end this process at that time: the pool does it too, but may be gone by then itself.

    The default action of the signal and not a Python handler, which would wait for a long power to be computed.
    """
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit_memory(megabytes: int | None) -> None:
    """Let this process take so much more than it has now; past it, an allocation raises MemoryError."""
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
