"""Processes that this one has started."""

from __future__ import annotations

import subprocess


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a process that has been told to end, and kill it if it has not by then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
