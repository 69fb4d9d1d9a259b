"""Ends processes of sandboxes from outside, while they judge."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path


def below(pid: int) -> list[list[int]]:
    """Processes that descend from one, by their distance: its children, theirs, and so on."""
    parents = dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(stat.parent.name)] = int(parent)
    levels, level = list[list[int]](), [pid]
    while level := [each for each, parent in parents.items() if parent in level]:
        levels.append(level)
    return levels


PROGRAMS = {"bubblewrap": 4, "unshare": 3, "landlock": 2}
"""How far programs are below the process that starts a sandbox; the judge is one nearer, the sandbox at 1."""


class Killer(threading.Thread):
    """Kills a process below another one by SIGKILL, as soon as there is one so far below; and does so again.

    Args:
        above: the process that starts sandboxes.
        level: how far below, in a sandbox that has programs.
        deepest: how far below the programs are.
        times: processes to be killed.
    Attributes:
        killed: those that were, in order.
    """

    def __init__(self, above: int, *, level: int, deepest: int, times: int = 1) -> None:
        super().__init__(daemon=True)
        self.above, self.level, self.deepest, self.times = above, level, deepest, times
        self.killed, self.over = list[int](), threading.Event()

    def run(self) -> None:
        before = list[list[int]]()
        while len(self.killed) < self.times and not self.over.wait(0.002):
            levels = below(self.above)
            # Twice the same: /proc is read while processes begin and end, and while one begins it may stand deeper.
            there = levels[self.level - 1] if len(levels) == self.deepest and levels == before else []
            before = levels
            for pid in there[:1]:
                if pid not in self.killed:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self.killed.append(pid)

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()
