"""One worker process with deadlines: it gets a message, returns a reply, and is killed if it does not answer."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from lyceum.reward._worker import LENGTH, MOST_BYTES
from lyceum.utils.documents import DocumentError, DocumentLimits, read_json
from lyceum.utils.errors import GraderLost, RunError
from lyceum.utils.terminal import printable

# -P: the working directory may hold a file with the name of a module that Python needs.
COMMAND = [sys.executable, "-P", "-m", "lyceum.reward._worker"]

_HOME = str(Path(__file__).parents[2])
"""The folder that holds the package, for a process that starts without the run's own sys.path."""

_REPLY = DocumentLimits(characters=MOST_BYTES, digits=1000)
_KINDS = ({"result"}, {"error"}, {"error", "traceback"}, {"lost"})
"""Keys of a reply."""

PRINTED_BYTES = 1 << 14
"""Maximum bytes shown of one job's prints; the rest is dropped, so that endless output does not fill the log."""

PRINTED_IN_ALL = 1 << 18
"""Maximum bytes shown of all jobs' prints in this process: a tool that prints at every call would fill the terminal."""

_CHUNK = 1 << 16
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
"""Signals that no computation raises: who sends them is the machine that is out of memory, or somebody."""

_EXIT_SECONDS = 1.0
"""Maximum seconds from the end of a process's pipes until it can be waited for: usually none."""

_LONGEST_WAIT = 3600.0
"""Maximum seconds per wait of the selector, which overflows above; a longer deadline is waited for in parts."""


class WorkerError(RunError):
    """The job gave no result: it raised, passed its time limit, or its process died. The message says which.

    ``traceback``: of the user's function, where it raised.
    """

    def __init__(self, message: str, traceback: str | None = None) -> None:
        super().__init__(message)
        self.traceback = traceback


class WorkerTimeoutError(WorkerError):
    """The job passed its time limit, and its process was ended."""


class WorkerKilledError(WorkerError):
    """The process was ended by a signal from outside: the job has not failed."""


class WorkerCpuError(WorkerError):
    """The job passed the CPU time that it had set itself (SIGVTALRM), in a computation that nothing else ends."""


class WorkerProcess:
    """``python -m lyceum.reward._worker``: one exchange at a time, in any thread; can be ended from any thread.

    It leads its own session: Ctrl-C at the terminal does not reach it, and it is ended with all processes that it
    started. It ends when this process does, however that ends: the kernel kills its group when the last end of a pipe
    that only this process holds is closed (``worker._end_with``).
    """

    def __init__(self, python: str | None = None) -> None:
        held_there, self._held_here = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*(COMMAND if python is None else [python, *COMMAND[1:]]), str(held_there)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(held_there,),
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, [_HOME, os.environ.get("PYTHONPATH")])),
                    # A verifier that iterates over a set of texts must grade alike in every process and every run.
                    "PYTHONHASHSEED": "0",
                },
            )
        except BaseException:
            os.close(self._held_here)
            raise
        finally:
            os.close(held_there)
        self._lock = threading.RLock()  # re-entrant: the garbage collector may end a pool in any line
        self.ready = False
        """Whether it has answered its first message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        for stream in self._streams:
            os.set_blocking(stream.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether :meth:`stop` or :meth:`close` was called."""
        return self._process.returncode is not None

    @property
    def died(self) -> bool:
        """Whether it exited without being ended from here; its children are left, until :meth:`stop`."""
        # Not poll: once it is waited for, its pid, by which its group is ended, may be another process's.
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return not self.ended and os.waitid(os.P_PID, self.pid, look) is not None

    def dies(self) -> bool:
        """Whether it exits by itself, once its pipes have ended."""
        deadline = time.monotonic() + _EXIT_SECONDS
        while not self.died and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.died

    def exchange(self, message: bytes, seconds: float) -> Any:
        """The reply to a message; sending, computing and receiving together take at most ``seconds``.

        Raises:
            WorkerError: the worker reports an error, and lives; or there is no readable reply in time, and the
                process has been ended (:attr:`ended`).
            GraderLost: the worker reports that what it started itself was ended from outside time and again.
        """
        printed = _Printed()
        try:
            reply = read_json(self._reply(message, seconds, printed), limits=_REPLY, finite=False)
            if not isinstance(reply, dict) or reply.keys() not in _KINDS:
                raise DocumentError("neither a result nor an error")
        except TimeoutError:
            self.close()
            raise WorkerTimeoutError(f"no result within {seconds:g} seconds; its process was ended") from None
        except (EOFError, OSError):
            died = self.dies()
            self.stop()
            printed.take(self._streams[2].fileno())  # why it died
            self.close()
            if died and -self._process.returncode in FROM_OUTSIDE:
                name = signal.Signals(-self._process.returncode).name
                raise WorkerKilledError(f"its process was ended by {name}, from outside") from None
            if self._process.returncode == -getattr(signal, "SIGVTALRM", 0):
                raise WorkerCpuError("its process was ended at its limit of CPU time") from None
            raise WorkerError(
                f"its process died with status {self._process.returncode} (a crash, too little memory, or "
                "os._exit in a function)"
            ) from None
        except DocumentError as error:
            self.close()
            raise WorkerError(f"its process sent an invalid reply ({printable(str(error))}) and was ended") from None
        finally:
            printed.show()
        self.ready = True
        if "lost" in reply:
            raise GraderLost(printable(str(reply["lost"])))
        if "error" in reply:
            raised = reply.get("traceback")
            raise WorkerError(printable(str(reply["error"])), None if raised is None else printable(str(raised)))
        return reply["result"]

    def _reply(self, message: bytes, seconds: float, printed: _Printed) -> bytes:
        to, results, prints = (stream.fileno() for stream in self._streams)
        unsent, reply = memoryview(message), bytearray()
        deadline = time.monotonic() + seconds
        with selectors.PollSelector() as selector:
            selector.register(to, selectors.EVENT_WRITE)
            selector.register(results, selectors.EVENT_READ)
            selector.register(prints, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                ready = {key.fd for key, _ in selector.select(min(max(left, 0), _LONGEST_WAIT))}
                if prints in ready and not printed.take(prints):
                    selector.unregister(prints)
                if results in ready:
                    part = os.read(results, _CHUNK)
                    if not part:
                        raise EOFError
                    if unsent:  # left over from an earlier job: it would be taken for this one's result
                        raise DocumentError("a reply before there was a job")
                    reply += part
                    if (whole := _body(reply)) is not None:
                        printed.take(prints)
                        return whole
                elif to in ready:
                    with contextlib.suppress(BlockingIOError):
                        unsent = unsent[os.write(to, unsent[:_CHUNK]) :]
                    if not unsent:
                        selector.unregister(to)
                # After one more read past it: this process may have slept (Ctrl-Z) while the reply was waiting.
                if left <= 0:
                    raise TimeoutError

    def stop(self) -> None:
        """End it and its children. Its pipes stay open: another thread may be reading from them."""
        with self._lock:
            if self._process.returncode is None:
                # Before it is waited for: until then no other process can have its pid.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                self._process.wait()

    def close(self) -> None:
        """End it and close its pipes; for the thread that talks to it."""
        self.stop()
        if not self._streams[0].closed:
            for stream in self._streams:
                stream.close()
            os.close(self._held_here)


def _body(reply: bytearray) -> bytes | None:
    """The message in these bytes, None if it is incomplete. Raises DocumentError if it is invalid."""
    if len(reply) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack_from(reply)
    if size > MOST_BYTES:
        raise DocumentError(f"a message of {size} bytes; allowed: at most {MOST_BYTES}")
    if len(reply) > LENGTH.size + size:
        raise DocumentError("more than one message")
    return bytes(reply[LENGTH.size :]) if len(reply) == LENGTH.size + size else None


class _Printed:
    """What a process prints during one exchange, up to a limit."""

    left: ClassVar[int] = PRINTED_IN_ALL
    """Bytes that may still be shown, of all exchanges."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._dropped = False

    def take(self, stream: int) -> bool:
        """Read once; False at the end of the stream."""
        try:
            part = os.read(stream, _CHUNK)
        except BlockingIOError:
            return True
        room = PRINTED_BYTES - len(self._kept)
        self._kept += part[:room]
        self._dropped |= len(part) > room
        return bool(part)

    def show(self) -> None:
        """Write it to the run's standard error, without terminal control sequences."""
        if not self._kept or _Printed.left <= 0:
            return
        _Printed.left -= len(self._kept)
        text = printable(self._kept.decode("utf-8", "replace"))
        if _Printed.left <= 0:
            text += f"\n[verifiers and tools printed more than {PRINTED_IN_ALL} bytes; further prints are not shown]\n"
        elif self._dropped:
            text += f"\n[a verifier's job printed more than {PRINTED_BYTES} bytes; the rest is not shown]\n"
        # Not sys.stderr: if the program's exit stops this thread while it holds that lock, the exit itself fails.
        with contextlib.suppress(OSError):  # stderr is closed
            os.write(2, text.encode())
