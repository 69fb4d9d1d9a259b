"""Processes that this one has started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO

from lyceum.utils.errors import how_it_ended
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


GRACE = 15.0
"""Seconds for a server to end by itself."""


class StartedServer:
    """A server below a small process that ends it when this one ends.

    Args:
        command: its command line, for the port at which it is to be reached.
        environment: variables that it has beside this process's.
    """

    def __init__(self, command: Callable[[int], Sequence[str]], environment: Mapping[str, str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        watch = Path(__file__).with_name("_server_watch.py")
        # A session of its own: the terminal's Ctrl-C reaches the run alone, which ends after its step.
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(watch), *command(port)],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    @property
    def why_ended(self) -> str | None:
        """What it said last, where it has ended."""
        code = self.process.poll()
        if code is None:
            return None
        lines = [line.strip() for line in lines_said(self._said)]
        errors = [line for line in lines if "Error" in line] or lines
        return f"the server {how_it_ended(code)}" + (f": {errors[-1]:.500}" if errors else "")

    def close(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        wait_or_kill(self.process, GRACE)
        self._said.close()
