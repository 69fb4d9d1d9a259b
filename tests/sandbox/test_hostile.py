"""No program gets out, none is passed that does not compute what is asked, and the run goes on."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hostile import ACTIONS, programs
from sandboxes import each_sandbox

from lyceum.sandbox.backends import Backend
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import SandboxError, Verdict, run

MARK = 0.3 + uuid.uuid4().int % 10**9 / 10**12
"""A time limit that no other sandbox of this machine has: it is in the command line of this one's processes."""
BRIEF = ProgramLimits(seconds=MARK, cpu_seconds=2, memory_mb=256, files_mb=2, output_kb=64)
TESTS = ["assert f(1) == 5", "assert isinstance(f(10), int) and abs(f(10) - 32) < 1"]
HONEST = "def f(x):\n    return x * 3 + 2"


class Outside:
    """What hostile programs look for on this machine."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"{uuid.uuid4()}.txt"
        self.file.write_text("secret")
        self.mode = self.file.stat()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.socket = folder / "s"
        self.named = socket.socket(socket.AF_UNIX)
        self.named.bind(str(self.socket))
        self.named.listen()
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])

    def places(self) -> dict[str, object]:
        port = self.listening.getsockname()[1]
        return {"file": str(self.file), "socket": str(self.socket), "port": port, "pid": self.process.pid}

    def check(self) -> None:
        """Nothing of it was touched."""
        now = self.file.stat()
        assert self.file.read_text() == "secret"
        assert (now.st_mode, now.st_mtime_ns, now.st_uid) == (
            self.mode.st_mode,
            self.mode.st_mtime_ns,
            self.mode.st_uid,
        )
        assert not any(Path(path).exists() for path in ("/written", "/dev/shm/written"))
        for waiting in (self.listening, self.named):
            waiting.setblocking(False)
            with pytest.raises(BlockingIOError):
                waiting.accept()
        assert self.process.poll() is None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        assert stat.rpartition(")")[2].split()[0] != "T"  # stopped

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.listening.close()
        self.named.close()


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    found = Outside(tmp_path_factory.mktemp("o"))
    yield found
    found.close()


@each_sandbox
def test_no_hostile_program_escapes_or_passes_a_test(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    monkeypatch.setenv("LYCEUM_SECRET", "x")
    hostile = programs(**outside.places())
    assert len(hostile) >= 135

    def verdict(what: str) -> Verdict | str:
        # What acts has time to; what takes time has little, which does not change how it ends.
        limits = BRIEF.model_copy(update={"seconds": MARK + 5}) if what in ACTIONS else BRIEF
        try:
            return run(hostile[what], tests=TESTS, limits=limits, backend=backend)
        except SandboxError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(hostile, pool.map(verdict, hostile), strict=True))
    passed = {what: told for what, told in found.items() if isinstance(told, Verdict) and any(told.tests)}
    assert not passed
    # Each is a verdict: a program cannot make itself ungraded, save one that takes the machine's memory.
    assert not {what: told for what, told in found.items() if isinstance(told, str)}
    over = {what: told.limit for what, told in found.items() if isinstance(told, Verdict) and told.limit}
    assert over["loops when it is called"] in ("wall-clock time", "CPU time")
    assert not over.keys() & ACTIONS.keys() - {"kills everything"}
    outside.check()
    assert_nothing_left()
    honest = run(HONEST, tests=TESTS, limits=BRIEF.model_copy(update={"seconds": 10.0}), backend=backend)
    assert honest.tests == (True, True)


def assert_nothing_left() -> None:
    """No process of this test's sandboxes is left, whoever its parent is now."""
    deadline = time.monotonic() + 10  # the kernel ends them a moment after the sandbox
    while found := leftover():
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def leftover() -> list[str]:
    """Processes of this test's sandboxes, whoever their parent is now."""
    found = list[str]()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        if any(f'"seconds": {seconds},' in line for seconds in (MARK, MARK + 5)):
            found.append(line)
    return found
