"""Sandboxes, judges and programs that somebody else kills while they run: judged again, and no answer turns wrong."""

from __future__ import annotations

import os

import pytest
from killing import PROGRAMS, Killer
from leaves import grades, task
from sandboxes import each_sandbox

from lyceum.reward.code import Code
from lyceum.reward.pool import WorkerPool
from lyceum.sandbox.backends import Backend
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import Verdict, execute, run_all
from lyceum.utils.errors import KILLED_IN_A_ROW, GraderLost

LIMITS = ProgramLimits(seconds=30, cpu_seconds=20)
TESTS = ["assert f(1) == 5", "assert f(2) == 8"]
SLOW = "sum(range(10 ** 7))\ndef f(x):\n    return x * 3 + 2"
"""It takes long enough to be found."""
places = pytest.mark.parametrize("place", ["sandbox", "judge", "program"])


def killer(place: str, backend: Backend, *, times: int, above: int | None = None) -> Killer:
    deepest = PROGRAMS[backend]
    level = {"sandbox": 1, "judge": deepest - 1, "program": deepest}[place]
    return Killer(os.getpid() if above is None else above, level=level, deepest=deepest, times=times)


@each_sandbox
@places
def test_what_is_killed_is_judged_again(place: str, backend: Backend) -> None:
    programs = [SLOW, "def f(x): return 0", SLOW]
    with killer(place, backend, times=KILLED_IN_A_ROW - 1) as killed:
        found = run_all(programs, tests=TESTS, limits=LIMITS, backend=backend)
    assert len(killed.killed) == KILLED_IN_A_ROW - 1
    assert [each.tests for each in found if isinstance(each, Verdict)] == [(True, True), (False, False), (True, True)]
    with killer(place, backend, times=1) as killed:
        printed = execute("sum(range(10 ** 7))\nprint(4)", characters=9, limits=LIMITS, backend=backend)
    assert killed.killed
    assert (printed.text, printed.error, printed.limit) == ("4\n", None, None)


@each_sandbox
def test_a_sandbox_that_is_killed_each_time_ends_the_run_in_whatever_process_it_is(backend: Backend) -> None:
    part = Code.model_validate({"limits": LIMITS.model_dump(), "processes": 1, "sandbox": backend})
    pool: WorkerPool = part.pool()
    assert [grade.outcome for grade in grades(part, task(tests=TESTS), SLOW)] == [1.0]
    with killer("judge", backend, times=KILLED_IN_A_ROW, above=pool.pids[0]), pytest.raises(GraderLost) as lost:
        grades(part, task(tests=TESTS), SLOW)
    assert f"the sandbox ({backend}) was ended by a signal from outside, 3 times in a row" in str(lost.value)


@each_sandbox
def test_a_program_that_is_killed_each_time_is_over_a_limit(backend: Backend) -> None:
    # A program must not have itself left ungraded: what ends it three times is its own doing.
    with killer("program", backend, times=100) as killed:
        [found] = run_all([SLOW], tests=TESTS, limits=LIMITS, backend=backend)
    assert len(killed.killed) == KILLED_IN_A_ROW
    assert isinstance(found, Verdict)
    assert (found.tests, found.limit) == ((False, False), "signal 9")
