"""A server of this process's own: started for it on this machine, and ended with it, however it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from lyceum.utils.child_processes import lines_said, wait_or_kill
from lyceum.utils.errors import how_it_ended

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
