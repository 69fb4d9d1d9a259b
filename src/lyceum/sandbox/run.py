"""One program and its tests in a sandbox: started, judged, ended.

``run`` is the whole interface. What a program does to its own processes does not matter: the verdict comes from a
process that its code never enters (``inside``), and the sandbox ends with its time.

Workers import this file as they start, so it imports little.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from lyceum.sandbox.backends import CONFINING, Backend, start
from lyceum.sandbox.inside.judge import read_tests
from lyceum.utils.documents import DocumentError, read_json
from lyceum.utils.errors import KILLED_IN_A_ROW, GraderLost, RunError
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import printable

Choice = Literal["auto", "bubblewrap", "unshare", "landlock", "none"]
START_SECONDS = 20.0
"""Time for a sandbox to start and to end, in seconds, beside the program's own: the machine may be busy."""
MOST_VERDICT = 1 << 20
MOST_PROCESSES = 64
"""Maximum processes of one sandbox."""
MOST_PAIRS = 64
"""Maximum input and output pairs of one program: each has its own process."""
_EXIT_SECONDS = 1.0
"""Maximum seconds from the end of a sandbox's output until it can be waited for: usually none."""
_KILLED = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, 128 + signal.SIGKILL, 128 + signal.SIGTERM}
"""Exit codes of a sandbox that was ended from outside: no program in it may send signals. bubblewrap adds 128."""
_UNSHARE_KILLED = "sigprocmask unblock failed"
"""What unshare before util-linux 2.39 says where its child was ended by SIGKILL, which it cannot send itself so."""


_ENVIRONMENT = {"PYTHONHASHSEED": "0"}


class Limits(Protocol):
    """A recipe's ``ProgramLimits``, or what a worker is told of them."""

    @property
    def seconds(self) -> float: ...

    @property
    def files_mb(self) -> int: ...

    @property
    def output_kb(self) -> int: ...


class SandboxError(RunError):
    """The program could not be judged: no sandbox, or it ended without a verdict. Not the program's fault."""


class KilledError(SandboxError):
    """The sandbox was ended by a signal from outside."""


class OverTimeError(SandboxError):
    """The judge took longer than its programs may: with one program in the sandbox it is that one's fault."""


@dataclass(frozen=True)
class Verdict:
    """What the judge saw.

    Attributes:
        tests: which tests passed; all False where a limit was exceeded.
        note: about the first test that failed, in the program's own words where it raised: printable, not trusted.
        limit: the limit that it exceeded.
        ran: whether it could be run before its tests were: it is Python, and raised no error. True for pairs.
        seconds: CPU time of its processes, in seconds.
        operations: Python instructions that it executed in the tests' calls; None where they were not counted.
    """

    tests: tuple[bool, ...]
    note: str | None
    limit: str | None
    ran: bool
    seconds: float
    operations: int | None


@dataclass(frozen=True)
class Printed:
    """What a program printed.

    Attributes:
        text: the beginning of it: printable, not trusted.
        error: with its line, where an error ended the program; in the program's own words.
        limit: the limit that it exceeded.
    """

    text: str
    error: str | None
    limit: str | None


def run(
    code: str,
    *,
    tests: str | Sequence[str] = (),
    pairs: Sequence[tuple[str, str]] = (),
    limits: Limits,
    backend: Backend,
    metered: bool = False,
    head: str = "",
) -> Verdict:
    """``run_all`` of one program. Raises SandboxError where there is no verdict."""
    [found] = run_all([code], tests=tests, pairs=pairs, limits=limits, backend=backend, metered=metered, head=head)
    if isinstance(found, str):
        raise SandboxError(found)
    return found


def run_all(
    programs: Sequence[str],
    *,
    tests: str | Sequence[str] = (),
    pairs: Sequence[tuple[str, str]] = (),
    limits: Limits,
    backend: Backend,
    metered: bool = False,
    head: str = "",
) -> list[Verdict | str]:
    """Run programs, and the same tests after each; all of it only inside a sandbox.

    Programs share a sandbox, one after the other, each in a process and a folder of its own. Where that sandbox ends
    without a verdict, each has one for itself. One that is ended from outside is started again, and so is a program
    that SIGKILL ended before its time was over: it may be the machine's doing or somebody's, and where it is the
    program's, it comes to the same end.

    Args:
        programs: Python.
        tests: Python, a test per text; or one script, whose every statement that is no definition, import or assignment
            is a test. Names that the tests do not define are the program's.
        pairs: instead of tests, what it reads and what it should print, each pair in a process of its own.
        metered: count the Python instructions of the tests' calls, where the program cannot reach the counter.
        head: text of the task that every program begins with; helpers that it defines are not the program's in the
            tests (``inside.judge.names_of``).
    Returns:
        The verdict on each program, or the reason why there is none, which is not the program's fault.
    Raises:
        GraderLost: a sandbox was ended from outside ``KILLED_IN_A_ROW`` times in a row.
    """
    if bool(tests) == bool(pairs):
        return ["a program has either tests or pairs of input and output"] * len(programs)
    if len(pairs) > MOST_PAIRS:
        return [f"{len(pairs)} pairs of input and output; allowed: at most {MOST_PAIRS}"] * len(programs)
    job = _job(limits, tests=tests, pairs=pairs, metered=metered, head=head)
    each = len(pairs) or 1
    together = max(MOST_PROCESSES // each, 1)
    found = list[Verdict | str]()
    for place in range(0, len(programs), together):
        found += _together(backend, job, programs[place : place + together], each, limits)
    return found


def execute(program: str, *, characters: int, limits: Limits, backend: Backend) -> Printed:
    """Run a program for what it prints, without input and without tests.

    Args:
        characters: kept of what it prints.
    Raises:
        SandboxError: it could not be run, which is not its fault.
        GraderLost: as for :func:`run_all`.
    """
    job = {**_job(limits, kept=characters), "programs": [program]}
    [answer] = _answers(backend, job, 1, limits)
    verdict = _verdict(answer)
    if isinstance(verdict, str):
        raise SandboxError(verdict)
    error = verdict.note or (None if verdict.ran or verdict.limit else "it ended before its last line")
    return Printed(printable(str(answer["printed"])), error, verdict.limit)


def _job(
    limits: Limits,
    *,
    tests: str | Sequence[str] = (),
    pairs: Sequence[tuple[str, str]] = (),
    metered: bool = False,
    head: str = "",
    kept: int | None = None,
) -> dict[str, object]:
    """What the judge is told, beside the programs."""
    return {
        "tests": [tests] if isinstance(tests, str) else list(tests),
        "script": isinstance(tests, str),
        "pairs": [list(pair) for pair in pairs] or None,
        "kept": kept,
        "output_kb": limits.output_kb,
        "metered": metered,
        "head": head,
    }


def _together(
    backend: Backend, job: dict[str, object], programs: Sequence[str], each: int, limits: Limits
) -> list[Verdict | str]:
    try:
        answers = _answers(backend, {**job, "programs": list(programs)}, each, limits)
    except SandboxError as error:
        if len(programs) == 1:
            return [_over_time(job, limits) if isinstance(error, OverTimeError) else str(error)]
        return [found for program in programs for found in _together(backend, job, [program], each, limits)]
    return [_verdict(answer) for answer in answers]


def _over_time(job: dict[str, Any], limits: Limits) -> Verdict:
    """The verdict on a program with which the judge was still computing when its time was over."""
    tests = [False] * (len(job["pairs"] or ()) or sum(read_tests(job)[1]))
    return Verdict(tuple(tests), None, "wall-clock time", False, limits.seconds, None)


def _verdict(answer: dict[str, Any]) -> Verdict | str:
    if answer["unsupported"] is not None:
        return printable(str(answer["unsupported"]))
    if answer["killed"] and answer["out_of_memory"]:
        return "the machine ended the program, not its limits: it was out of memory"
    passed = tuple(test is True for test in answer["tests"])
    note, limit = answer["note"], answer["limit"]
    return Verdict(
        passed if limit is None else (False,) * len(passed),
        None if note is None else printable(str(note)),
        None if limit is None else printable(str(limit)),
        answer["ran"] is True and limit is None,
        float(answer["seconds"]),
        answer["operations"],
    )


def _answers(
    backend: Backend, job: dict[str, Any], each: int, limits: Limits, *, left: int = KILLED_IN_A_ROW
) -> list[dict[str, Any]]:
    """What the judge answers for each program, where something was killed after another try.

    Args:
        each: processes of each program.
        left: tries.
    Raises:
        SandboxError: it does not answer.
        GraderLost: it was killed at each try.
    """
    try:
        answers = _started(backend, job, len(job["programs"]) * each, limits)
    except KilledError as error:
        if left == 1:
            why = "; a machine that is out of memory does that: lower limits.memory_mb or processes"
            raise GraderLost(f"{error}, {KILLED_IN_A_ROW} times in a row{why}") from None
        return _answers(backend, job, each, limits, left=left - 1)
    for place, program in enumerate(job["programs"]):
        if answers[place]["killed"] and left > 1:
            [answers[place]] = _answers(backend, {**job, "programs": [program]}, each, limits, left=left - 1)
    return answers


def _started(backend: Backend, job: dict[str, Any], processes: int, limits: Limits) -> list[dict[str, Any]]:
    """What the judge answers for each program. Raises SandboxError where it does not."""
    try:
        argv = start(backend, files_mb=limits.files_mb).argv(dict(vars(limits)))
    except OSError as error:
        raise SandboxError(str(error)) from None
    body = to_json(job).encode()
    ended_before = _ended_for_memory()
    message = struct.pack(">II", processes, len(body)) + body
    with tempfile.TemporaryFile() as errors:
        # No descriptor but these three. What it says of itself goes to a file; programs do not have it.
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0, env=_ENVIRONMENT, cwd="/"
        )
        try:
            said, over = _exchange(process, message, limits.seconds * processes + START_SECONDS)
            if not over:
                with contextlib.suppress(subprocess.TimeoutExpired):  # how it ended, before it is ended here
                    process.wait(_EXIT_SECONDS)
            code = process.returncode
        finally:
            # The kernel ends the whole tree with this one: with its namespace, or by the judge's death signal.
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
        ready, _, answer = said.partition(b"\n")
        errors.seek(0)
        told = errors.read(MOST_VERDICT).decode("utf-8", "replace").strip().rpartition("\n")[2]
        if (code in _KILLED or _UNSHARE_KILLED in told) and not answer.endswith(b"]"):
            raise KilledError(f"the sandbox ({backend}) was ended by a signal from outside")
        if ready == b"ready" and (answer.startswith(b"Timeout") or (over and not answer)):
            raise OverTimeError(f"the sandbox ({backend}) gave no verdict within its time")
        if ready != b"ready" or not answer:
            what = "ended without a verdict" if ready == b"ready" else "did not start"
            raise SandboxError(f"the sandbox ({backend}) {what}{': ' if told else ''}{printable(told)}")
    try:
        found = read_json(answer)
    except DocumentError as error:
        raise SandboxError(f"the sandbox ({backend}) gave no readable verdict: {printable(str(error))}") from None
    assert isinstance(found, list)
    out_of_memory = _ended_for_memory() != ended_before
    return [{**answer, "out_of_memory": out_of_memory} for answer in found]


def _ended_for_memory() -> int | None:
    """How many processes this machine's kernel has ended for want of memory; None where it does not say."""
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counts["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def _exchange(process: subprocess.Popen[bytes], message: bytes, seconds: float) -> tuple[bytes, bool]:
    """Send the message and read to the end, at most ``MOST_VERDICT`` bytes; True where the time was over before."""
    assert process.stdin is not None
    assert process.stdout is not None
    deadline, unsent, said = time.monotonic() + seconds, memoryview(message), bytearray()
    for stream in (process.stdin, process.stdout):
        os.set_blocking(stream.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(said) < MOST_VERDICT and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(min(left, 1.0)):
                if key.fileobj is process.stdout:
                    part = os.read(process.stdout.fileno(), 1 << 16)
                    if not part:
                        return bytes(said), False
                    said += part
                else:
                    with contextlib.suppress(BrokenPipeError):  # it did not start; its output says why
                        unsent = unsent[os.write(process.stdin.fileno(), unsent[: 1 << 16]) :]
                        if unsent:
                            continue
                    selector.unregister(process.stdin)
    return bytes(said), len(said) < MOST_VERDICT


# What a program tries in the self-test; each entry is what it could do.
_PROBE = """
import os, socket, ctypes

def escapes(path, secret):
    done = []
    def attempt(what, action):
        try:
            result = action()
        except (OSError, AttributeError):
                return
        if result is not False:
            done.append(what)
    attempt("open a socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    attempt("open a socket of this machine", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    attempt("read a file of this machine", lambda: open(path).read() == secret)
    attempt("write beside its own files", lambda: open(path, "a"))
    attempt("start a process", os.fork)
    attempt("run another program", lambda: os.execv("/bin/true", ["true"]))
    attempt("signal another process", lambda: os.kill(os.getppid(), 0))
    attempt("see the environment", lambda: "PATH" in os.environ)
    return done
"""


@functools.cache
def fault_of(backend: Backend) -> str | None:
    """Why a backend cannot be used here, found by trying once; None where a program in it is confined."""
    if backend == "none":
        return None
    if backend in os.environ.get("LYCEUM_SANDBOX_OFF", "").split(","):
        return "taken away by LYCEUM_SANDBOX_OFF"
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    from lyceum.sandbox.limits import ProgramLimits  # here alone: no worker asks

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("secret")
        file.flush()
        limits = ProgramLimits(seconds=10)
        tests = [f"done = escapes({file.name!r}, 'secret')\nassert not done, ', '.join(done)"]
        try:
            found = run(_PROBE, tests=tests, limits=limits, backend=backend)
        except (SandboxError, GraderLost) as error:
            return _with_cure(str(error))
    return None if found.tests == (True,) else f"does not confine programs here: {found.note or found.limit}"


def _with_cure(fault: str) -> str:
    """The fault, and what an administrator can do where the kernel or a container withholds what is needed."""
    cure = None
    if "exceeded" in fault or "No space left on device" in fault:
        cure = "this user may have no user namespaces: sysctl user.max_user_namespaces=10000"
    elif any(sign in fault for sign in ("uid map", "unshare failed", "namespace", "Operation not permitted")):
        cure = (
            "user namespaces are off: allow them with sysctl kernel.apparmor_restrict_unprivileged_userns=0 or "
            "kernel.unprivileged_userns_clone=1; in a container with its option for them"
        )
    elif "no Landlock" in fault:
        cure = (
            "Linux 5.13 or newer, with landlock among its boot parameter lsm=; in a container a profile that allows it"
        )
    return fault if cure is None else f"{fault} ({cure})"


def usable(choice: Choice) -> Backend:
    """The backend of this name; for ``auto`` the strongest that works on this machine.

    Raises:
        SandboxError: it does not work here, and why.
    """
    if choice != "auto":
        fault = fault_of(choice)
        if fault is not None:
            raise SandboxError(f"got {choice!r}, which does not work here: {fault}")
        return choice
    faults = dict[str, str]()
    for backend in CONFINING:
        fault = fault_of(backend)
        if fault is None:
            return backend
        faults[backend] = fault
    told = "; ".join(f"{backend}: {fault}" for backend, fault in faults.items())
    raise SandboxError(f"no sandbox works on this machine, and programs are not run without one: {told}")
