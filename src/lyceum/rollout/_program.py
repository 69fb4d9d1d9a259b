"""A program of the user's own: started, given its task, and ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, TypeVar

from lyceum.utils.errors import RunError
from lyceum.utils.terminal import printable

T = TypeVar("T")

MOST_PRINTED = 1 << 20
"""Maximum bytes that are kept of what a program prints; the rest is read and dropped."""
_QUOTED = 2000
_CHUNK = 1 << 16


class AgentProgramError(RunError):
    """A program could not be started, or ended with another status than 0.

    ``details``: the end of what it wrote to its standard error.
    """

    def __init__(self, message: str, details: str | None = None) -> None:
        super().__init__(message)
        self.details = details


async def in_thread(function: Callable[[], T]) -> T:
    """The result of a function that blocks, from a thread of its own. Where it is cancelled, the thread is left to
    itself, and does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # pyright: ignore[reportArgumentType]
        else:
            # Ctrl-C is no thread's: what raises it there is the function itself, which ends no run by it.
            foreign = isinstance(error, StopIteration | KeyboardInterrupt | GeneratorExit)
            future.set_exception(RuntimeError(type(error).__name__) if foreign else error)

    def work() -> None:
        result, raised = None, None
        try:
            result = function()
        except BaseException as error:
            raised = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=work, daemon=True, name="lyceum-agent").start()
    return await future


async def run_program(command: Sequence[str], given: bytes, environment: Mapping[str, str]) -> str:
    """What a program prints. What it leaves running is ended with it; where this is cancelled, it is ended too.

    Args:
        given: to its standard input.
        environment: beside this process's own.
    Raises:
        AgentProgramError: it cannot be started, or ends with another status than 0.
    """
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise AgentProgramError(f"{command[0]}: {error}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    reading = [asyncio.ensure_future(in_thread(lambda of=of: _read(of))) for of in (stdout, stderr)]
    try:
        writing = asyncio.ensure_future(in_thread(lambda: _write(stdin, given)))
        # Not waited for yet: until then no other process can have its pid, by which its group is ended.
        await in_thread(lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT))
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    await writing
    out, errors = [printable(each.decode("utf-8", "replace")) for each in await asyncio.gather(*reading)]
    if status:
        said = [line for line in errors.splitlines() if line.strip()]
        ended = f"it was ended by signal {-status}" if status < 0 else f"it ended with status {status}"
        raise AgentProgramError(": ".join([ended, *said[-1:]]), errors[-_QUOTED:] or None)
    return out


def _write(stream: IO[bytes], given: bytes) -> None:
    with suppress(OSError):  # it does not read, or has ended
        stream.write(given)
    with suppress(OSError):
        stream.close()


def _read(stream: IO[bytes]) -> bytes:
    kept = bytearray()
    with stream:
        while part := os.read(stream.fileno(), _CHUNK):
            kept += part[: MOST_PRINTED - len(kept)]
    return bytes(kept)
