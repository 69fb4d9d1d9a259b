"""Processes for verifiers that are slow, hang, or must not be trusted with the run's own process.

A job that exceeds its time limit has its process killed and replaced; the others continue. The limit also holds for C
code and endless powers, since it kills the process instead of raising inside it. A job whose process is ended from
outside (by SIGKILL, where the machine is out of memory) has not failed: another process does it again.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from lyceum.reward._worker import START_SECONDS, pack
from lyceum.reward._worker_process import (
    WorkerCpuError,
    WorkerError,
    WorkerKilledError,
    WorkerProcess,
    WorkerTimeoutError,
)
from lyceum.utils.errors import KILLED_IN_A_ROW, GraderLost

__all__ = ["WorkerCpuError", "WorkerError", "WorkerKilledError", "WorkerPool", "WorkerTimeoutError", "shared_pool"]


class WorkerPool:
    """``workers`` processes, each started by its first job, all ended with the pool or with the program.

    Any number of callers may wait, in any thread and in any event loop; a job's time counts from when a process starts
    it.
    """

    def __init__(
        self,
        factory: str,
        settings: Mapping[str, Any],
        *,
        workers: int,
        timeout_seconds: float,
        memory_mb: int | None = None,
        python: str | None = None,
        start_seconds: float | None = None,
        repeatable: bool = True,
        name: str | None = None,
    ) -> None:
        """``factory`` is ``module:name`` of a function that takes ``settings`` and returns a function of one job.

        ``python`` is another interpreter than this one, with packages of its own: the factory's module imports those
        alone. ``start_seconds`` is how long a process may take until it is ready; None takes the usual time.
        ``repeatable`` says that a job does nothing but compute its result, so that it may be done again.
        ``name`` is what messages call its jobs, by default the factory.
        """
        start_seconds = START_SECONDS if start_seconds is None else start_seconds
        start = {
            "factory": factory,
            "settings": dict(settings),
            "path": [entry for entry in sys.path if isinstance(entry, str)] if python is None else None,
            "memory_mb": memory_mb,
            "seconds": start_seconds,
        }
        self._state = _State(
            pack(start), name or factory, timeout_seconds, [None] * workers, python, start_seconds, repeatable
        )
        for number in range(workers):
            # The thread refers to the state and not to the pool, so that an unreferenced pool is ended.
            thread = f"reward-worker-{number}"
            threading.Thread(target=_serve, args=(self._state, number), name=thread, daemon=True).start()
        self._finalizer = weakref.finalize(self, _end, self._state)

    async def run(self, job: Any, *, timeout_seconds: float | None = None) -> Any:
        """The result of one job (both in JSON types).

        Args:
            timeout_seconds: of this job; None takes the pool's.
        Raises:
            TypeError: JSON cannot hold the job.
            WorkerError: there is no result.
            GraderLost: the job is repeatable, and its process was ended from outside ``KILLED_IN_A_ROW`` times in a
                row.
        """
        return await asyncio.wrap_future(self.submit(job, timeout_seconds=timeout_seconds))

    def submit(self, job: Any, *, timeout_seconds: float | None = None) -> Future[Any]:
        """``run`` for a caller that is not a coroutine: the future has its result or exception."""
        seconds = self._state.timeout_seconds if timeout_seconds is None else timeout_seconds
        message = pack({"job": job, "timeout_seconds": seconds})
        future: Future[Any] = Future()
        with self._state.lock:
            if self._state.ended:
                raise WorkerError("the pool is closed")
            self._state.jobs.put(_Job(message, seconds, future))
        return future

    @property
    def pids(self) -> list[int]:
        """Pids of processes that were started and not ended."""
        return [process.pid for process in self._state.processes if process is not None and not process.ended]

    def close(self) -> None:
        self._finalizer()


_shared: weakref.WeakValueDictionary[str, WorkerPool] = weakref.WeakValueDictionary()


def shared_pool(
    factory: str,
    settings: Mapping[str, Any],
    *,
    workers: int,
    timeout_seconds: float,
    memory_mb: int | None = None,
    repeatable: bool = True,
    name: str | None = None,
) -> WorkerPool:
    """The pool for these settings: training and evaluation build the same reward, and need its processes once.

    A fork of the run has its own: it has none of the threads that talk to the run's processes.
    """
    of = [os.getpid(), factory, dict(settings), workers, timeout_seconds, memory_mb, repeatable]
    key = json.dumps(of, sort_keys=True)
    pool = _shared.get(key)
    if pool is None:
        limits: dict[str, Any] = {"workers": workers, "timeout_seconds": timeout_seconds, "memory_mb": memory_mb}
        pool = _shared[key] = WorkerPool(factory, settings, **limits, repeatable=repeatable, name=name)
    return pool


@dataclass(frozen=True)
class _Job:
    message: bytes
    timeout_seconds: float
    future: Future[Any]


@dataclass
class _State:
    start: bytes
    name: str
    timeout_seconds: float
    processes: list[WorkerProcess | None]
    python: str | None
    start_seconds: float
    repeatable: bool
    jobs: queue.SimpleQueue[_Job | None] = field(default_factory=queue.SimpleQueue)
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Re-entrant: the garbage collector may end the pool in any line of a thread that holds it."""
    ended: bool = False
    owner: int = field(default_factory=os.getpid)


def _serve(state: _State, number: int) -> None:
    """Main loop of one worker's thread: a job, its process, its result."""
    while (job := state.jobs.get()) is not None:
        if not job.future.set_running_or_notify_cancel():
            continue
        try:
            job.future.set_result(_result(state, number, job))
        except Exception as error:
            job.future.set_exception(error)
    state.jobs.put(None)  # for the next thread
    _close(state, number)


def _result(state: _State, number: int, job: _Job) -> Any:
    """A job's result. Where its process is ended from outside it keeps its turn, and waits for another to start."""
    killed = 0
    while True:
        try:
            return _once(state, number, job)
        except WorkerKilledError as error:
            killed += 1
            if not state.repeatable:
                raise
            if killed == KILLED_IN_A_ROW:
                raise GraderLost(
                    f"{state.name}: {error}, {killed} times in a row at the same job; a machine that is out of "
                    "memory does that: allow its processes less memory (memory_mb, limits.memory_mb), or have fewer "
                    "of them (processes, workers)"
                ) from None


def _once(state: _State, number: int, job: _Job) -> Any:
    process = state.processes[number]
    if process is not None and process.died:  # it died while idle: no job failed
        _close(state, number)
        process = None
    process = process or _start(state, number)
    try:
        return process.exchange(job.message, job.timeout_seconds)
    except WorkerError:
        if process.ended:
            _close(state, number)
        raise


def _start(state: _State, number: int) -> WorkerProcess:
    try:
        with state.lock:
            if state.ended:
                raise WorkerError("the pool is closed")
            process = state.processes[number] = WorkerProcess(state.python)
        process.exchange(state.start, state.start_seconds)
    except WorkerKilledError:
        _close(state, number)
        raise
    except (OSError, WorkerError) as error:
        _close(state, number)
        failure = WorkerError(f"its process did not start: {error}")
        if not any(other.ready for other in state.processes if other is not None):
            _fail_waiting(state, failure)
        raise failure from None
    return process


def _fail_waiting(state: _State, failure: WorkerError) -> None:
    """Fail all waiting jobs, as no process starts: each would otherwise wait as long for the same failure."""
    with state.lock:  # no job is submitted meanwhile
        for _ in range(state.jobs.qsize()):
            try:
                job = state.jobs.get_nowait()
            except queue.Empty:
                return
            if job is None:
                state.jobs.put(None)
            elif job.future.set_running_or_notify_cancel():
                job.future.set_exception(failure)


def _close(state: _State, number: int) -> None:
    process, state.processes[number] = state.processes[number], None
    if process is not None:
        process.close()


def _end(state: _State) -> None:
    if state.owner != os.getpid():  # in a fork of the run: the processes belong to the parent
        return
    with state.lock:
        state.ended = True
        processes = [process for process in state.processes if process is not None]
    for process in processes:
        process.stop()
    state.jobs.put(None)
