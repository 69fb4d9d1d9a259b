"""How ``faults.py`` kills processes that grade: the rewards, their states, and the checks of what they gave.

Every grade is known: a function gives 1 and a hash of task and completion, the other part gives 1, so that a grade that
is missing or 0 shows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/sandbox"))

STATES = {
    "grader loads": "a grader, as it is started",
    "grader is idle": "a grader that has nothing to grade",
    "grader has just been asked": "a grader, before it has read what it should grade",
    "grader grades": "a grader in the middle of a completion, with no other waiting",
    "grader grades and others wait": "a grader in the middle of a completion, with others waiting",
    "grader has just answered": "a grader, before anything is done with its answer",
    "judge of a sandbox judges": "the judge of a sandbox that has programs",
    "program in a sandbox runs": "a program in a sandbox",
}
ORDERS = ("fixed", "ready", "one process")
"""The last without workers: the run itself samples, grades and learns."""
HEAD = "total = sum(range(10 ** 6))\ndef f(x):\n    return x * 3 + 2\n#"
"""A program that passes its tests whatever completion follows in the comment, and takes some time."""

FUNCTION = """
import os, signal, zlib
from pathlib import Path

def score(completion, id):
    now = Path(os.environ["FAULT"])
    try:
        os.rename(now, now.with_suffix(f".killed-{os.getpid()}"))  # of several that come to this, one
    except OSError:
        return 1 + zlib.crc32(f"{id} {completion}".encode()) / 2**32
    os.kill(os.getpid(), signal.SIGKILL)
"""


def in_sandbox(state: str | None) -> bool:
    return state is not None and "sandbox" in state


def prepare(work: str) -> None:
    """Write the function and the rows into the folder that runs work in."""
    Path(work, "graded.py").write_text(FUNCTION)
    rows = (
        {"prompt": f"{n}+{n % 7}=", "answer": str(n), "head": HEAD, "tests": ["assert f(1) == 5"]} for n in range(64)
    )
    Path(work, "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def keys(work: str, sandbox: bool, processes: int) -> list[str]:
    function = f"{{kind: function, function: '{work}/graded.py:score', processes: {processes}}}"
    other = (
        "{kind: code, processes: 1, limits: {seconds: 30, cpu_seconds: 20}}"
        if sandbox
        else "{kind: format, pattern: '(?s).*'}"
    )
    return [f"tasks={work}/rows.jsonl", "tasks.heldout_share=0.5", f"reward=[{function}, {other}]", "trust_code=true"]


def misgraded(leaf: Any, task: str, sandbox: bool) -> bool:
    """Whether a grade is not what an undisturbed grader gives."""
    parts = {} if leaf.grade is None or leaf.grade.outcome is None else leaf.grade.parts
    program = not sandbox or "\n" in leaf.completion or parts.get("code") == 1
    function = 1 + zlib.crc32(f"{task} {leaf.completion}".encode()) / 2**32
    return parts.get("score") != function or not program or not (sandbox or parts.get("format") == 1)


class Graders:
    """Kills one process that grades in each step, in whatever process of the run it is asked.

    Args:
        step: the number of the step, from the one on that was drawn; None before it.
        mark: files of this name and the step's number say that something was killed.
    """

    def __init__(self, state: str, step: Callable[[], int | None], mark: Path) -> None:
        self.state, self.step, self.mark = state, step, mark

    def claim(self, what: str = "killed") -> bool:
        """Whether the caller is the one who may kill."""
        step = self.step()
        if step is None:
            return False
        try:
            os.close(os.open(self.mark.with_suffix(f".{what}-{step}"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def kill(self, pid: int) -> None:
        if self.claim():
            os.kill(pid, signal.SIGKILL)

    def watch(self) -> None:
        """Patch what talks to graders, in this process and in those that are forked from it."""
        from lyceum.reward import pool
        from lyceum.reward._worker_process import WorkerProcess

        graders: Any = WorkerProcess
        begin, reply, once = graders.__init__, graders._reply, pool._once

        def started(process: Any, *args: Any) -> None:
            begin(process, *args)
            if self.state == "grader loads":
                self.kill(process.pid)

        def replied(process: Any, *args: Any) -> bytes:
            if not process.ready:  # it loads
                return reply(process, *args)
            if self.state == "grader has just been asked":
                self.kill(process.pid)
            if in_sandbox(self.state):
                with Sandboxes(self, process.pid):
                    return reply(process, *args)
            answer = reply(process, *args)
            if self.state == "grader has just answered":
                self.kill(process.pid)
            return answer

        def job(state: Any, number: int, asked: Any) -> Any:
            process = state.processes[number]
            if self.state == "grader is idle" and process is not None and self.claim():
                os.kill(process.pid, signal.SIGKILL)
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            waiting = {"grader grades": False, "grader grades and others wait": True}.get(self.state)
            function = state.name.endswith("graded.py:score")
            if function and waiting == (state.jobs.qsize() > 0) and self.claim("asked"):
                self.mark.with_suffix(".now").touch()
            return once(state, number, asked)

        graders.__init__, graders._reply, pool._once = started, replied, job


class Sandboxes:
    """Kills in the sandboxes that a grader starts, while it has a job."""

    def __init__(self, graders: Graders, grader: int) -> None:
        self.graders, self.grader, self.over = graders, grader, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self) -> None:
        from killing import PROGRAMS, below

        from lyceum.sandbox.run import usable

        deepest = PROGRAMS[usable("auto")]
        level = deepest - 1 if self.graders.state == "judge of a sandbox judges" else deepest
        while not self.over.wait(0.002):
            levels = below(self.grader)
            if len(levels) == deepest and self.graders.claim():
                os.kill(levels[level - 1][0], signal.SIGKILL)
                return

    def __enter__(self) -> None:
        if self.graders.step() is not None:
            self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread.ident is not None:
            self.thread.join()
