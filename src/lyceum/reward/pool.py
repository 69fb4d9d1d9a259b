"""Processes for verifiers that are slow, hang, or must not be trusted with the run's own process.

A job that passes its time limit ends its process, which is replaced; the others go on. The limit holds for C code and
for endless powers, since it ends a process and raises nothing inside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import selectors
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lyceum.reward.worker import receive, send

_HOME = str(Path(__file__).parents[2])
"""The folder that holds the package, for a process that starts without the run's own sys.path."""

START_SECONDS = 120.0
"""How long a process may take to start: its imports can be heavy and the machine busy."""


class WorkerError(Exception):
    """The job gave no result: it raised, passed its time limit, or its process died. The message says which."""


class Pool:
    """``workers`` processes, each started by its first job, all ended with the pool or with the program.

    Any number of callers may wait, in any thread and in any event loop; a job's time counts from when a process takes
    it up.
    """

    def __init__(
        self,
        factory: str,
        settings: Mapping[str, Any],
        *,
        workers: int,
        timeout_seconds: float,
        memory_mb: int | None = None,
    ) -> None:
        """``factory`` is ``module:name`` of a function that takes ``settings`` and gives a function of one job."""
        start = {
            "factory": factory,
            "settings": dict(settings),
            "path": [entry for entry in sys.path if isinstance(entry, str)],
            "timeout_seconds": timeout_seconds,
            "memory_mb": memory_mb,
        }
        self._state = _State(start, timeout_seconds, [None] * workers)
        for number in range(workers):
            # The thread knows the state and not the pool, so that a pool that nobody holds is ended.
            name = f"reward-worker-{number}"
            threading.Thread(target=_serve, args=(self._state, number), name=name, daemon=True).start()
        self._finalizer = weakref.finalize(self, _end, self._state)

    async def run(self, job: Any) -> Any:
        """The result of one job (both are what JSON can hold).

        Raises:
            TypeError: JSON cannot hold the job.
            WorkerError: there is no result.
        """
        json.dumps(job)
        future: Future[Any] = Future()
        with self._state.lock:
            if self._state.ended:
                raise WorkerError("the pool is closed")
            self._state.jobs.put((job, future))
        return await asyncio.wrap_future(future)

    @property
    def pids(self) -> list[int]:
        """Processes that live now."""
        return [process.pid for process in self._state.processes if process is not None and process.poll() is None]

    def close(self) -> None:
        self._finalizer()


_shared: weakref.WeakValueDictionary[str, Pool] = weakref.WeakValueDictionary()


def shared_pool(
    factory: str,
    settings: Mapping[str, Any],
    *,
    workers: int,
    timeout_seconds: float,
    memory_mb: int | None = None,
) -> Pool:
    """The pool for these settings: training and evaluation build the same reward, and need its processes once."""
    key = json.dumps([factory, dict(settings), workers, timeout_seconds, memory_mb], sort_keys=True)
    pool = _shared.get(key)
    if pool is None:
        pool = Pool(factory, settings, workers=workers, timeout_seconds=timeout_seconds, memory_mb=memory_mb)
        _shared[key] = pool
    return pool


@dataclass
class _State:
    start: dict[str, Any]
    timeout_seconds: float
    processes: list[subprocess.Popen[bytes] | None]
    jobs: queue.SimpleQueue[tuple[Any, Future[Any]] | None] = field(default_factory=queue.SimpleQueue)
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: bool = False
    owner: int = field(default_factory=os.getpid)


def _serve(state: _State, number: int) -> None:
    """The life of one worker's thread: a job, its process, its result."""
    while (item := state.jobs.get()) is not None:
        job, future = item
        if not future.set_running_or_notify_cancel():
            continue
        try:
            process = state.processes[number] or _start(state, number)
            future.set_result(_exchange(state, number, process, job, state.timeout_seconds))
        except Exception as error:
            future.set_exception(error)
    state.jobs.put(None)  # for the next thread


def _start(state: _State, number: int) -> subprocess.Popen[bytes]:
    with state.lock:
        if state.ended:
            raise WorkerError("the pool is closed")
        process = subprocess.Popen(
            # -P: the working directory may hold a file with the name of a module that Python needs.
            [sys.executable, "-P", "-m", "lyceum.reward.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_HOME, os.environ.get("PYTHONPATH")]))},
        )
        state.processes[number] = process
    try:
        _exchange(state, number, process, state.start, START_SECONDS)
    except WorkerError as error:
        _stop(process)
        state.processes[number] = None
        raise WorkerError(f"the verifier's process did not start: {error}") from None
    return process


def _exchange(state: _State, number: int, process: subprocess.Popen[bytes], message: Any, seconds: float) -> Any:
    """Send a message and wait for its reply; a process that gives none in time, or dies, is ended and forgotten."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        send(process.stdin, message)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            reply = receive(process.stdout) if selector.select(seconds) else None
    except (EOFError, OSError):
        _stop(process)
        state.processes[number] = None
        raise WorkerError(f"the verifier's process died with status {process.returncode}") from None
    if reply is None:
        _stop(process)
        state.processes[number] = None
        raise WorkerError(f"no result within {seconds:g} seconds; the verifier's process was ended")
    if "error" in reply:
        raise WorkerError(reply["error"])
    return reply["result"]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        # What was still to be written to the process has nowhere to go.
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()


def _end(state: _State) -> None:
    if state.owner != os.getpid():  # in a fork of the run: the processes are not this one's
        return
    with state.lock:
        state.ended = True
        processes = [process for process in state.processes if process is not None]
    for process in processes:
        process.kill()
        process.wait()
    state.jobs.put(None)
