"""Coroutines: gathered so that the first failure cancels all, run from plain code, and an event loop that tells when it
is idle."""

from __future__ import annotations

import asyncio
import inspect
import selectors
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class _IdleSelector(selectors.DefaultSelector):
    """Resolves the futures in ``waiting`` when its loop is about to block: when no coroutine can go on."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[asyncio.Future[None]] = []
        self.blocked = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.waiting and (timeout is None or timeout > 0):
            waiting, self.waiting = self.waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            timeout = 0  # their callbacks are ready now
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        began = time.perf_counter()
        try:
            return super().select(timeout)
        finally:
            self.blocked += time.perf_counter() - began


class IdleLoop(asyncio.SelectorEventLoop):
    """asyncio's loop; :func:`idle` waits in it until every coroutine waits for something outside of the loop."""

    def __init__(self) -> None:
        self._idle = _IdleSelector()
        super().__init__(self._idle)

    @property
    def blocked(self) -> float:
        """Seconds in which every coroutine waited for something outside of the loop."""
        return self._idle.blocked

    def idle(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.create_future()
        self._idle.waiting.append(future)
        return future


async def idle() -> None:
    """Wait until no other coroutine can go on: all who were answered have sent their next requests, or have ended.

    In a loop that is not ours, for one turn of it: who sends a request later shares a later batch.
    """
    loop = asyncio.get_running_loop()
    await (loop.idle() if isinstance(loop, IdleLoop) else asyncio.sleep(0))


async def awaited(value: Any) -> Any:
    """What a function returned that may be async, or not."""
    return await value if inspect.isawaitable(value) else value


async def gather(coroutines: Any) -> list[Any]:
    """Like asyncio.gather, but the first failure cancels the rest: nothing keeps running after an error."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in an :class:`IdleLoop`, in its own thread where a loop runs already (a notebook).

    KeyboardInterrupt cancels it, in a thread too.
    """
    if not _loop_runs():
        return _run(coroutine)
    from concurrent.futures import ThreadPoolExecutor

    began: Future[tuple[asyncio.AbstractEventLoop, asyncio.Future[T]]] = Future()

    async def run() -> T:
        task = asyncio.ensure_future(coroutine)
        began.set_result((asyncio.get_running_loop(), task))
        return await task

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(_run, run())
        try:
            return result.result()
        except KeyboardInterrupt:
            # It was raised in this thread; the other one would otherwise run to its end.
            loop, task = began.result()
            with suppress(RuntimeError):  # it has just finished, and its loop is closed
                loop.call_soon_threadsafe(task.cancel)
            raise


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=IdleLoop) as runner:
        return runner.run(coroutine)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
