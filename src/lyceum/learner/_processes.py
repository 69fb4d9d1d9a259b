"""Starting the other processes of a run on this machine, and ending them with it, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

from lyceum.utils.child_processes import lines_said, wait_or_kill
from lyceum.utils.errors import RunError, how_it_ended
from lyceum.utils.threads import usable_cores

ENDS_WITH_STARTER = "LYCEUM_ENDS_WITH_STARTER"
"""Set in a process that ends when its standard input does: the starter holds the other end, even when it is killed."""

GRACE = 10.0
"""Seconds for the others to end by themselves, and for this process to notice that one of them has ended."""


class ProcessEnded(RunError):
    """One of the processes ended before the run did."""


@contextmanager
def started(number: int, command: Sequence[str]) -> Iterator[None]:
    """Be the first of ``number`` processes; the others run ``command``, and are ended on leaving.

    Raises:
        ProcessEnded: one of them has ended; its last words are in the message.
    """
    own = os.environ.copy()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {**shared, "RANK": "0", "LOCAL_RANK": "0"}
    # What torch would do in each process: take all cores.
    threads = {"OMP_NUM_THREADS": str(max(1, usable_cores() // number))} | own
    others: list[_Other] = []
    leaving = threading.Event()
    try:
        for rank in range(1, number):
            numbered = {"RANK": str(rank), "LOCAL_RANK": str(rank), ENDS_WITH_STARTER: "1"}
            others.append(_Other(command, {**threads, **shared, **numbered}, f"process {rank} of {number}"))
        threading.Thread(target=_watch, args=(others, leaving), daemon=True).start()
        try:
            yield
        except Exception as error:
            time.sleep(0.5)  # an end that this process noticed first
            if lines := [line for other in others for line in other.last_words()]:
                raise ProcessEnded(lines) from error
            raise
    finally:
        leaving.set()
        for other in others:
            other.end()
        for name in (*shared, "RANK", "LOCAL_RANK"):
            os.environ.pop(name, None)
        os.environ |= own


class _Other:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str], name: str) -> None:
        self.name = name
        self.said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        # A session of its own: the terminal's Ctrl-C reaches the first process alone, which ends after its step.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self.said,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )

    def last_words(self) -> list[str]:
        """Why it ended, in a line; none where it runs, or is done."""
        if not self.process.poll():
            return []
        lines = [line.strip() for line in lines_said(self.said)]
        # torch's and Python's own warnings at exit come after the error.
        errors = [line for line in lines if "Error" in line and not line.startswith(("File", "raise"))] or lines
        code = self.process.returncode
        return [f"{self.name} {how_it_ended(code)}" + (f": {errors[-1]}" if errors and code > 0 else "")]

    def end(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        wait_or_kill(self.process, GRACE)
        self.said.close()


def _watch(others: Sequence[_Other], leaving: threading.Event) -> None:
    """End this process where it still waits for one that has ended, as in a collective of GPUs: none would return."""
    while not leaving.wait(1.0):
        if any(other.process.poll() for other in others):
            if leaving.wait(GRACE):
                return
            for line in (line for other in others for line in other.last_words()):
                os.write(2, f"error: {line}\n".encode())
            for other in others:
                other.process.kill()
            os._exit(1)


def end_with_starter() -> None:
    """In a process that :func:`started` started: end when it does, whatever is being computed or waited for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides when to end
    if os.environ.get(ENDS_WITH_STARTER):

        def wait() -> None:
            os.read(0, 1)  # not by sys.stdin, whose lock a process that is forked meanwhile would keep
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()
