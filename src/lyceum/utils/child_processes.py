"""Processes that this one has started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import IO

from lyceum.utils.numbers import to_json


def import_path() -> list[str]:
    """Where this process imports from."""
    return [entry for entry in sys.path if isinstance(entry, str)]


def start_module(
    module: str,
    served: socket.socket,
    said: IO[bytes],
    *,
    path: Sequence[str],
    folder: str | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """A Python process that runs a module's ``main``, which serves who is at the other end of a socket.

    Args:
        served: the socket's end that becomes the process's own, its number the first argument; closed here.
        said: where it prints.
        path: where it imports from.
        folder: that it works in; by default this process's.
        environment: variables beside, or in the place of, this process's.
    """
    program = f"import sys, json; sys.path[:] = json.loads(sys.argv[2]); from {module} import main; main()"
    # A session of its own: the terminal's Ctrl-C reaches the run alone, which ends after its step.
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(served.fileno()), to_json(list(path))],
        pass_fds=[served.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    served.close()
    return process


def lines_said(said: IO[bytes]) -> list[str]:
    """The lines of what a process has printed into a file, without empty ones."""
    said.seek(0)
    return [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a process that has been told to end, and kill it if it has not by then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
