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
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lyceum.core import own_components, paper_folders
from lyceum.core.tallies import risen, with_added, without_tallies
from lyceum.core.tree import Tree
from lyceum.core.types import GoesOn, State
from lyceum.core.waves import Wave
from lyceum.evaluation.held_out import HeldOut, held_out_elsewhere
from lyceum.models.load import load_policy
from lyceum.recipe.schema import parse
from lyceum.runtime.processes import Processes, read_state, same, unpacked, what_differs
from lyceum.runtime.wire import Message, Part, pack, receive, say_grown
from lyceum.training.stages.growing import Growing
from lyceum.training.train import check
from lyceum.utils.aio import IdleLoop, run_async
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.progress import Progress
from lyceum.utils.threads import computing_with

if TYPE_CHECKING:
    from lyceum.training.stages.models import SamplingStage
    from lyceum.training.stages.online import Online

EVERY = 0.2
"""Seconds between words about what was sampled."""
TOGETHER = 0.05
"""Seconds that a finished group waits for others to be sent with it: alone, each takes half as long again."""


def main() -> None:
    """Serve on the socket whose number is the first argument, until the other side ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when to end
    to_run = ToRun(Connection(int(sys.argv[1])))
    try:
        start = receive(to_run.connection).said
        waves = Waves(to_run.connection, Path(start["snapshots"]))
        with computing_with(start["threads"]), Told(to_run):
            ready, runtime = (held_out(start), Processes()) if "held_out" in start else growing(start)
            to_run.send({"what": "ready"})
            run_async(serve(ready, runtime, waves, to_run))
    except (RecipeError, RunError) as error:
        to_run.send({"what": "failed", "error": type(error).__name__, "lines": error.lines})
    except Exception as error:
        lines = [str(error)[:500], *traceback.format_exc().splitlines()[-8:]]
        to_run.send({"what": "failed", "error": type(error).__name__, "lines": lines})
    time.sleep(1.0)  # the run reads why


def growing(start: dict[str, Any]) -> tuple[Growing, Processes]:
    """What grows the trees of the stage that the run has told of, and how."""
    paper_folders.use(start["papers"])
    with own_components.trusting((), everything=True):  # the user has allowed it, or the run had not begun
        recipe = parse(start["recipe"])
    policy = load_policy(recipe.model)
    source, _ = check(recipe)
    stage = cast("SamplingStage", recipe.stages[start["stage"]])
    runtime = cast(Processes, stage.composition().runtime)
    if runtime.as_finished and runtime.at_once is None:
        runtime = runtime.model_copy(update={"at_once": cast("Online", stage).tasks_per_step})
    return Growing.elsewhere(stage, policy, source, recipe.reward, start), runtime


def held_out(start: dict[str, Any]) -> HeldOut:
    """What grows held-out tasks as the run has told."""
    paper_folders.use(start["papers"])
    with own_components.trusting((), everything=True):
        return held_out_elsewhere(start)


class Snapshots:
    """Gives what grows trees the models of a snapshot, those that it does not have yet."""

    def __init__(self, growing: Growing | HeldOut) -> None:
        self.growing, self.has = growing, dict[str, str]()

    def load(self, files: Mapping[str, str]) -> bool:
        """Whether there were any.

        Raises:
            FileNotFoundError: nobody needs this snapshot any more.
        """
        new = {name: file for name, file in files.items() if self.has.get(name) != file}
        for name, file in new.items():
            self.growing.load_model(name, read_state(file))
            self.has[name] = file
        return bool(new)


class States:
    """States of guides and graders as the run has told of them, and what graders have counted since."""

    def __init__(self, growing: Growing | HeldOut) -> None:
        self.growing = growing
        self.told: State = growing.grader.state_dict()
        """Of the grader, with the counts that the run was told of."""

    def load(self, state: State) -> None:
        untold = risen(self.told, self.growing.grader.state_dict())  # of groups that are under way
        self.told = state["grader"]
        self.growing.load_states(state)
        self.growing.grader.load_state_dict(with_added(self.told, untold))

    def counted(self) -> dict[str, float]:
        """What graders counted since the run was last told, whichever group it was for."""
        now = self.growing.grader.state_dict()
        counted, self.told = risen(self.told, now), now
        return counted

    def same_grader(self, state: State) -> bool:
        """Whether graders are in this state already, but for their counts."""
        return same(without_tallies(self.told), without_tallies(state["grader"]))


async def serve(growing: Growing | HeldOut, runtime: Processes, waves: Waves, to_run: ToRun) -> None:
    if runtime.as_finished:
        await GroupsBeside(cast(Growing, growing), runtime, waves, to_run).serve()
    else:
        await InTurn(growing, waves, to_run).serve()


class InTurn:
    """Grows wave after wave, in the order in which they come.

    A wave that waits for nothing but its graders does so while the next one is drawn, where that changes nothing:
    grading needs no model that changes, and finds graders in the same state.
    """

    def __init__(self, growing: Growing | HeldOut, waves: Waves, to_run: ToRun) -> None:
        self.growing, self.waves, self.to_run, self.time = growing, waves, to_run, Time()
        self.snapshots, self.states = Snapshots(growing), States(growing)
        self.tasks: set[asyncio.Task[None]] = set()
        self.version: int | None = None
        """Of the engine's weights."""
        self.drawn: asyncio.Future[None]
        """Of the newest wave: whether only its graders are waited for."""

    async def serve(self) -> None:
        loop, growing = asyncio.get_running_loop(), self.growing
        while True:
            message = await loop.run_in_executor(None, self.waves.next)
            said = message.said
            if self.tasks and not (growing.grades_apart and self.states.same_grader(said["state"])):
                await asyncio.gather(*self.tasks)
            self.states.load(said["state"])
            # A step's further waves find the caches of its first one, as they do in one process.
            if self.snapshots.load(said["weights"]) or said["version"] != self.version:
                self.version = said["version"]
                await growing.engine.load(growing.policy.module, version=said["version"])
            self.drawn = loop.create_future()
            task = asyncio.ensure_future(self.grow(said["wave"], unpacked(message)))
            self.tasks.add(task)
            task.add_done_callback(self.ended)
            await self.drawn

    async def grow(self, number: int, wave: Wave) -> None:
        state: dict[str, Any] = {}

        def done() -> None:
            self.to_run.send({"what": "done", "wave": number})

        def drawn() -> None:
            state.update(deepcopy(self.growing.states()))  # the next wave brings other states of guides
            self.drawn.set_result(None)

        grown = await self.growing.grow(wave, done, drawn)
        state["grader"] = self.growing.grader.state_dict()
        send_grown(self.to_run, {number: Part(grown.trees, grown.computed, state, self.states.counted())}, self.time)

    def ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self.drawn.done():
            self.waves.fail(error)
        else:
            self.drawn.set_exception(error)


class GroupsBeside:
    """Grows waves of one ticket beside each other, and takes new weights while they grow (``order: ready``)."""

    def __init__(self, growing: Growing, runtime: Processes, waves: Waves, to_run: ToRun) -> None:
        self.growing, self.runtime, self.waves, self.to_run, self.time = growing, runtime, waves, to_run, Time()
        self.engine, self.snapshots, self.states = cast(GoesOn, growing.engine), Snapshots(growing), States(growing)
        self.places = asyncio.Semaphore(cast(int, runtime.at_once))
        self.version: int | None = None
        """Of the weights; None while there are none, or newer ones are on their way and the ones told of are gone."""
        self.oldest = 0
        """Version under which the next token is drawn, or an older one."""
        self.state: State = {}
        """Of guides and graders, as the run has told."""
        self.computed = 0
        """Tokens computed that the run was told of."""
        self.finished: dict[int, Part] = {}
        """By wave; the run has not got them yet."""
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        waiting: list[Message] = []
        while True:
            messages = await loop.run_in_executor(None, self.waves.all)
            snapshots = [message.said for message in messages if message.said["what"] == "snapshot"]
            waiting += [message for message in messages if message.said["what"] == "wave"]
            if snapshots:
                await self.load(snapshots[-1])
            for message in waiting if self.version is not None else ():
                task = asyncio.ensure_future(self.grow(message))
                self.tasks.add(task)
                task.add_done_callback(self.ended)
            waiting = waiting if self.version is None else []

    async def load(self, said: Mapping[str, Any]) -> None:
        """Take a snapshot between two tokens."""
        version = said["version"]
        if version != self.version:
            self.version = None
            try:
                self.snapshots.load(said["weights"])
            except FileNotFoundError:
                return
            await self.engine.load(self.growing.policy.module, version=version, under_way=self.runtime.under_way)
        self.version, self.oldest, self.state = version, version, said["state"]
        self.states.load(self.state)

    async def grow(self, message: Message) -> None:
        number, wave = message.said["wave"], unpacked(message)
        grown = await self.growing.beside(wave, number, self.drawing(number))
        now = self.growing.states()
        if not same(without_tallies(now), without_tallies(self.state)):
            raise RunError(
                f"runtime: {what_differs(now, self.state)} changes while trees grow, which runtime.order 'ready' "
                "cannot do in one order; allowed: runtime.order=fixed with runtime.workers=1 and runtime.staleness=0"
            )
        computed, self.computed = self.engine.tokens_computed - self.computed, self.engine.tokens_computed
        if not self.finished:
            asyncio.get_running_loop().call_later(TOGETHER, self.send_finished)
        self.finished[number] = Part(grown.trees, computed, {}, self.states.counted())

    def send_finished(self) -> None:
        finished, self.finished = self.finished, {}
        try:
            send_grown(self.to_run, finished, self.time)
        except Exception as error:  # of a callback, which nobody waits for
            self.waves.fail(error)

    @asynccontextmanager
    async def drawing(self, number: int) -> AsyncIterator[None]:
        """The place of a wave while it is drawn."""
        async with self.places:
            self.to_run.send({"what": "begun", "wave": number, "version": self.oldest})
            yield

    def ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.waves.fail(error)


class Time:
    """A worker's time, and what of it nothing could be computed in."""

    def __init__(self) -> None:
        self._loop = cast(IdleLoop, asyncio.get_running_loop())
        self._blocked, self._now = self._loop.blocked, time.perf_counter()

    def passed(self) -> dict[str, float]:
        """Seconds since the last call."""
        before = self._blocked, self._now
        self._blocked, self._now = self._loop.blocked, time.perf_counter()
        return {"blocked": self._blocked - before[0], "lived": self._now - before[1]}


def send_grown(to_run: ToRun, parts: Mapping[int, Part], clock: Time) -> None:
    said, trees = say_grown(parts)
    to_run.send(said | clock.passed(), trees)


class Waves:
    """Messages of the run, read as they come, so that it never waits for the worker; its end is the worker's."""

    def __init__(self, connection: Connection, snapshots: Path) -> None:
        self._messages: queue.SimpleQueue[Message | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(connection, snapshots), daemon=True).start()

    def next(self) -> Message:
        found = self._messages.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def all(self) -> list[Message]:
        """Those that have come, one at the least."""
        found = [self.next()]
        while not self._messages.empty():
            found.append(self.next())
        return found

    def fail(self, error: BaseException) -> None:
        """Let who reads the next message have an error."""
        self._messages.put(error)

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
