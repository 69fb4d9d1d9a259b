"""The process in which an environment of another library runs episodes, many at once (called by ``episodes``).

Its interpreter may be one in which only the library is installed, and not what lyceum needs: so this imports the
standard library alone, and the module of each library that library.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

TURN_SECONDS = 0.05
"""Maximum time that a turn waits for an episode to end, in seconds: as long may the next ones wait to begin."""
_TEXT = 2000


class Episodes(Protocol):
    """An environment of a library."""

    def tasks(self, first: int, last: int) -> list[dict[str, Any]]:
        """Its tasks from one place to before another, fewer where there are no more, each ``prompt`` (a text or chat
        messages), ``answer``, and ``data``: what ``run`` takes."""
        ...

    async def run(
        self, data: Any, base_url: str, key: str, model: str, max_requests: int, max_tokens: int
    ) -> Mapping[str, Any]:
        """``reward`` of an episode, and as ``parts`` further numbers by their names.

        Raises:
            Exception: there is none.
        """
        ...


def host(module: str, made: Mapping[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """The worker's job function: lists ``tasks`` from a place to another, or takes a turn at the episodes under way.

    ``module`` has a function ``make`` that returns :class:`Episodes`.

    A turn begins those under ``begin``, ends those under ``stop``, and returns the results of those that have ended by
    themselves: ``{"result": ...}`` or ``{"error": ...}``.
    """
    # Programs that it starts have packages of their own, and ask the run on this machine.
    os.environ.pop("PYTHONPATH", None)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
    sys.path.append(os.getcwd())
    environment: Episodes = importlib.import_module(module).make(**made)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    under_way: dict[str, asyncio.Task[Mapping[str, Any]]] = {}

    async def turn(begin: Mapping[str, Mapping[str, Any]], stop: list[str]) -> dict[str, Any]:
        for ticket in stop:
            if (episode := under_way.pop(ticket, None)) is not None:
                episode.cancel()
        for ticket, asked in begin.items():
            under_way[ticket] = asyncio.ensure_future(environment.run(**asked))
        if under_way:
            await asyncio.wait(under_way.values(), timeout=TURN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        ended = [ticket for ticket, episode in under_way.items() if episode.done()]
        return {ticket: _result(under_way.pop(ticket)) for ticket in ended}

    def work(job: dict[str, Any]) -> Any:
        if "tasks" in job:
            return environment.tasks(*job["tasks"])
        # Not in this thread: where an episode keeps the others from going on, the turn is late, and the process ended.
        return asyncio.run_coroutine_threadsafe(turn(**job), loop).result()

    return work


def _result(episode: asyncio.Task[Mapping[str, Any]]) -> dict[str, Any]:
    if episode.cancelled():
        return {"error": "it was cancelled by itself"}
    if (error := episode.exception()) is not None:
        return {"error": f"{type(error).__name__}: {error}"[:_TEXT]}
    return {"result": dict(episode.result())}
