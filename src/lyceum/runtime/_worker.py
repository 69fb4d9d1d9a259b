"""A worker as the run sees it: a process here or elsewhere, started again where it is lost."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import IO, Any, Protocol

from lyceum.core.waves import Begins
from lyceum.runtime.wire import Message, Part, grown_parts, pack, receive
from lyceum.utils import errors
from lyceum.utils.child_processes import import_path, lines_said, start_module, wait_or_kill
from lyceum.utils.errors import RunError, how_it_ended

log = logging.getLogger(__name__)

ENTRY = "lyceum.training.worker"
"""Module whose ``main`` is the worker; a name, since nothing here may import what is above."""
STARTS = 3
"""Maximum times in a row that a worker may end without having finished a wave."""
LOADING = 600.0
"""Seconds that a worker may take to load the model, at the least."""
GRACE = 5.0
"""Seconds for a worker to end by itself."""


Heard = Callable[[Mapping[str, int] | None], None]
"""Called with what a worker has sampled and graded since it last said so, and with None as a tree is finished."""


@dataclass
class _Asked:
    content: bytes
    heard: Heard
    files: Sequence[str] = ()
    begun: Begins = lambda version: None
    part: Future[Part] = field(default_factory=Future)
    counted: Counter[str] = field(default_factory=Counter)
    finished: int = 0
    repeated: int = 0
    """Trees that are done again, and were told of before."""

    def hear(self, counts: Mapping[str, int] | None) -> None:
        if counts is not None:
            self.counted.update(counts)
            self.heard(counts)
        elif self.repeated:
            self.repeated -= 1
        else:
            self.finished += 1
            self.heard(None)

    def again(self) -> None:
        """It is done from its beginning: what was told of it counts no more."""
        self.repeated, before = self.finished, self.counted.copy()
        self.counted.clear()
        if before:
            self.heard({name: -count for name, count in before.items()})


class Process(Protocol):
    """A worker's process, wherever it is."""

    def send(self, content: bytes, files: Sequence[str] = ()) -> None:
        """Say something that names these files of snapshots. Never waits, and raises nothing where it has ended."""
        ...

    def receive(self) -> Message:
        """
        Raises:
            EOFError, OSError, ValueError: it has ended, or says what is no message.
        """
        ...

    def kill(self) -> None: ...

    def wait(self) -> str:
        """How it ended, in words."""
        ...

    def last_words(self) -> list[str]:
        """The last lines that it printed."""
        ...

    def close(self) -> None:
        """Let it end by itself, and kill it if it has not after :data:`GRACE` seconds."""
        ...


class Started:
    """A process of this machine that serves a run, which is at the other end of a socket.

    Args:
        served: the socket's end that becomes the process's own; closed here.
        path: where it imports from.
        folder: that it works in; by default this process's.
        devices: numbers of the GPUs that it sees; None: all that this process does.
    """

    def __init__(
        self, served: socket.socket, path: Sequence[str], folder: str | None = None, devices: str | None = None
    ) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
        self.process = start_module(ENTRY, served, self._said, path=path, folder=folder, environment=environment)

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> str:
        return how_it_ended(self.process.wait())

    def last_words(self) -> list[str]:
        return lines_said(self._said)[-5:]

    def end(self) -> None:
        """Wait until it has ended, its socket being closed, or kill it."""
        wait_or_kill(self.process, GRACE)
        self._said.close()


class Local(Started):
    """A process of the run's own machine: implements :class:`Process`."""

    def __init__(self, devices: str | None = None) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(theirs, import_path(), devices=devices)
        self._socket, self._connection = ours, Connection(os.dup(ours.fileno()))

    def send(self, content: bytes, files: Sequence[str] = ()) -> None:
        with suppress(OSError):  # it has ended, which who receives sees
            self._connection.send_bytes(content)

    def receive(self) -> Message:
        return receive(self._connection)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # both sides read an end
        self._socket.close()
        self.end()


class ThisMachine:
    """Where workers run, and snapshots are read where they were written. Implements :class:`Machines`.

    Args:
        devices: the GPU of each worker, dealt in turn; None: all see those of the run.
    """

    def __init__(self, devices: Sequence[str] | None = None) -> None:
        self.devices = devices

    def start(self, number: int) -> Process:
        return Local(None if self.devices is None else self.devices[number % len(self.devices)])

    def forget(self, files: Iterable[str]) -> None:
        pass


class Machines(Protocol):
    """Where workers run."""

    def start(self, number: int) -> Process:
        """Begin the process of the worker of this number. Never waits."""
        ...

    def forget(self, files: Iterable[str]) -> None:
        """Take away files of snapshots that nobody needs, where they were brought."""
        ...


class Worker:
    """One process, started again where it is lost; its waves are asked again, in order.

    Args:
        start: what it is told first.
        patience: seconds without a word from it while it has work, after which it is ended and started again.
        machines: where it runs; by default this one.
        key: of the recipe, that says how many there are.
    """

    def __init__(
        self,
        number: int,
        start: Mapping[str, Any],
        patience: float,
        machines: Machines | None = None,
        key: str = "runtime",
    ) -> None:
        self.name, self.number, self.patience, self.key = f"worker {number}", number, patience, key
        self._start, self._machines = pack(start), machines or ThisMachine()
        self._asked: dict[int, _Asked] = {}
        self._lock = threading.RLock()
        self._ended = False
        self._error: BaseException | None = None
        self._starts = 0
        self._heard = time.monotonic()
        self._silent = 0.0
        """Seconds without a word for which its process was ended; 0: it was not."""
        self._renewal: tuple[bytes, Sequence[str]] | None = None
        self.blocked = self.lived = 0.0
        """Seconds in which it had nothing to compute, and all, where it says so."""
        self._begin()
        threading.Thread(target=self._watch, name=f"lyceum-{self.name}-watch", daemon=True).start()

    @property
    def pid(self) -> int:
        """Of a process of this machine."""
        return self._process.process.pid  # pyright: ignore

    def _begin(self) -> None:
        self._starts += 1
        self._process, self._ready, self._silent = self._machines.start(self.number), False, 0.0
        self._heard = time.monotonic()
        threading.Thread(target=self._listen, args=(self._process,), name=f"lyceum-{self.name}", daemon=True).start()
        self._process.send(self._start)
        if self._renewal is not None:
            self._process.send(*self._renewal)
        for asked in self._asked.values():
            asked.again()
            self._process.send(asked.content, asked.files)

    @property
    def ready(self) -> bool:
        """Whether it has loaded what it needs, or never will."""
        return self._ready or self._ended

    @property
    def load(self) -> int:
        """Waves that it has and has not finished."""
        return len(self._asked)

    def renew(self, content: bytes, files: Sequence[str]) -> None:
        """Tell it of a new snapshot. One that is started again is told of the newest before its waves."""
        with self._lock:
            self._renewal = content, files
            self._process.send(content, files)

    def ask(
        self,
        wave: int,
        content: bytes,
        heard: Heard,
        files: Sequence[str] = (),
        begun: Begins = lambda version: None,
    ) -> Future[Part]:
        """
        Args:
            files: of the snapshot that the wave names.
            begun: called by workers that take new weights while a wave waits for its turn.
        """
        with self._lock:
            if not self._asked:
                self._heard = time.monotonic()
            asked = _Asked(content, heard, files, begun)
            if self._error is not None:
                asked.part.set_exception(self._error)
                return asked.part
            self._asked[wave] = asked
            self._process.send(content, files)
        return asked.part

    def _listen(self, process: Process) -> None:
        while True:
            try:
                said, trees = process.receive()
            except (EOFError, OSError, ValueError):
                break
            self._heard = time.monotonic()
            match said["what"]:
                case "ready":
                    self._ready = True
                case "counts":
                    self._tell(said["counts"])
                case "done":
                    self._tell(None, said["wave"])
                case "begun":
                    with self._lock:
                        asked = self._asked.get(said["wave"])
                    if asked is not None:
                        asked.begun(said["version"])
                case "grown":
                    self._starts = 0
                    self.blocked, self.lived = self.blocked + said["blocked"], self.lived + said["lived"]
                    for wave, part in grown_parts(said, trees).items():
                        with self._lock:
                            asked = self._asked.pop(wave, None)
                        if asked is not None:
                            asked.part.set_result(part)
                case _:
                    self._fail(_error(said["error"], said["lines"]))
        if not self._ended:
            process.kill()
            self._lost(process.wait())

    def _tell(self, counts: Mapping[str, int] | None, wave: int | None = None) -> None:
        """
        Args:
            wave: whose it is; None: the oldest's.
        """
        with self._lock:
            asked = next(iter(self._asked.values()), None) if wave is None else self._asked.get(wave)
        if asked is not None:
            asked.hear(counts)

    def _lost(self, how: str) -> None:
        if self._silent:
            setting = " (runtime.patience)" if self.key == "runtime" and self._silent == self.patience else ""
            how = f"was ended as it had said nothing for {self._silent:g} s{setting}"
        with self._lock:
            if self._ended:
                return
            if self._starts < STARTS:
                log.warning("%s %s: it is started again, and what it had not finished is done again", self.name, how)
                self._process.close()
                self._begin()
                return
        self._fail(RunError([f"{self.key}: {self.name} {how} {STARTS} times in a row", *self._process.last_words()]))

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._ended, self._error = True, error
            asked, self._asked = list(self._asked.values()), {}
        for each in asked:
            each.part.set_exception(error)

    def _watch(self) -> None:
        """End a process that says nothing while it has work."""
        while not self._ended:
            time.sleep(min(1.0, self.patience / 4))
            with self._lock:
                limit = self.patience if self._ready else max(self.patience, LOADING)
                silent = bool(self._asked) and time.monotonic() - self._heard > limit
                if silent:
                    self._heard, self._silent = time.monotonic(), limit
                    self._process.kill()

    def close(self) -> None:
        with self._lock:
            self._ended = True
            asked, self._asked = list(self._asked.values()), {}
        for each in asked:
            each.part.cancel()
        self._process.close()


def _error(name: str, lines: Sequence[str]) -> Exception:
    """An error of a worker as one of this process."""
    kind: Any = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, RunError | errors.RecipeError):
        return kind(lines)
    return RunError([f"a worker failed: {name}", *lines])
