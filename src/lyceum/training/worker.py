"""A worker process: recipe, snapshot and wave in, trees out (started by ``runtime/processes.py``)."""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from lyceum.core import own_components, paper_folders
from lyceum.core.tree import Tree
from lyceum.core.waves import Ticket, Wave
from lyceum.models.load import load_policy
from lyceum.recipe.schema import parse
from lyceum.run.trees import load_task
from lyceum.runtime.processes import load_snapshot
from lyceum.runtime.wire import Message, pack, receive
from lyceum.training.stages.growing import Growing
from lyceum.training.stages.online import Online
from lyceum.training.train import check
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.progress import Progress
from lyceum.utils.threads import computing_with

EVERY = 0.2
"""Seconds between words about what was sampled."""


def main() -> None:
    """Serve on the socket whose number is the first argument, until the other side ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when to end
    to_run = ToRun(Connection(int(sys.argv[1])))
    try:
        start = receive(to_run.connection).said
        waves = Waves(to_run.connection, Path(start["snapshots"]))
        with computing_with(start["threads"]), Told(to_run):
            ready = growing(start)
            to_run.send({"what": "ready"})
            run_async(serve(ready, waves, to_run))
    except (RecipeError, RunError) as error:
        to_run.send({"what": "failed", "error": type(error).__name__, "lines": error.lines})
    except Exception as error:
        lines = [str(error)[:500], *traceback.format_exc().splitlines()[-8:]]
        to_run.send({"what": "failed", "error": type(error).__name__, "lines": lines})
    time.sleep(1.0)  # the run reads why


def growing(start: dict[str, Any]) -> Growing:
    """What grows the trees of the stage that the run has told of."""
    paper_folders.use(start["papers"])
    with own_components.trusting((), everything=True):  # the user has allowed it, or the run had not begun
        recipe = parse(start["recipe"])
    policy = load_policy(recipe.model)
    source, _ = check(recipe)
    stage = cast(Online, recipe.stages[start["stage"]])
    engine = stage.engine.build(policy)
    return Growing(stage, policy, engine, source, recipe.reward, seed=start["seed"], folder=Path(start["judgements"]))


async def serve(growing: Growing, waves: Waves, to_run: ToRun) -> None:
    """Grow wave after wave, in the order in which they come."""
    loop = asyncio.get_running_loop()
    while True:
        said, trees = await loop.run_in_executor(None, waves.next)
        growing.load_state_dict(said["state"])
        load_snapshot(growing.module, said["weights"])
        await growing.engine.load(growing.module, version=said["version"])
        under_way = iter(trees)
        tickets: list[Ticket] = []
        for text, number in said["tickets"]:
            if text is None:
                tree = next(under_way)
                tickets.append(Ticket(tree.task, number, tree))
            else:
                tickets.append(Ticket(load_task(text), number))
        wave = Wave(said["key"], said["step"], said["progress"], said["version"], tuple(tickets))

        def done(number: int = said["wave"]) -> None:
            to_run.send({"what": "done", "wave": number})

        grown = await growing.grow(wave, done)
        answer = {"what": "grown", "wave": said["wave"], "computed": grown.computed, "state": growing.state_dict()}
        to_run.send(answer, grown.trees)


class Waves:
    """Messages of the run, read as they come, so that it never waits for the worker; its end is the worker's."""

    def __init__(self, connection: Connection, snapshots: Path) -> None:
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(connection, snapshots), daemon=True).start()

    def next(self) -> Message:
        return self._messages.get()

    def _listen(self, connection: Connection, snapshots: Path) -> None:
        while True:
            try:
                self._messages.put(receive(connection))
            except (EOFError, OSError, ValueError):
                shutil.rmtree(snapshots, ignore_errors=True)  # the run may have been killed
                os._exit(0)


class ToRun:
    """What is said to the run, by one thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, said: dict[str, Any], trees: Sequence[Tree] = ()) -> None:
        self.connection.send_bytes(pack(said, trees))


class Told(Progress):
    """A display that tells the run, now and then, what was sampled and graded, and shows nothing."""

    def __init__(self, to_run: ToRun) -> None:
        super().__init__(None, mode="silent")
        self._to_run, self._sent = to_run, 0.0
        self._untold: Counter[str] = Counter()

    def count(self, **counts: int) -> None:
        self._untold.update(counts)
        if time.monotonic() - self._sent > EVERY:
            self._sent = time.monotonic()
            self._to_run.send({"what": "counts", "counts": dict(self._untold)})
            self._untold.clear()


if __name__ == "__main__":
    main()
