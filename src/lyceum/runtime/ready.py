"""Workers that grow groups beside each other, each under the newest weights at every moment (``order: ready``).

A worker takes new weights between two tokens. A group that begins after a snapshot was published begins under it or a
newer one: messages are read in the order sent. Groups of a worker that is lost begin again in its successor; one that
hangs, in another worker too.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

from lyceum.core.tallies import without_tallies
from lyceum.core.waves import Begins, Grown, Grows, Wave
from lyceum.runtime._worker import Worker
from lyceum.runtime.processes import Processes, Workers, of_ticket, packed, same
from lyceum.runtime.wire import Part, pack
from lyceum.utils.errors import RunError

log = logging.getLogger(__name__)

TRIES = 3
"""Maximum times that a group is begun."""


class Straggler(RunError):
    """A group that no worker finishes."""


class _Group:
    """One that grows, in one worker or several."""

    def __init__(self, wave: Wave, begun: Begins) -> None:
        self.wave = wave
        self.begun: Begins | None = begun
        self.grown: Future[Grown] = Future()
        self.asked: list[Worker] = []
        self.began = 0.0
        self._lock = threading.Lock()
        self.grown.set_running_or_notify_cancel()

    def begins(self, version: int) -> None:
        """The first time that it does in a worker; if it is begun again, that is under newer weights."""
        begun, self.begun = self.begun, None
        if begun is not None:
            begun(version)

    def finished(self, part: Future[Part]) -> None:
        if part.cancelled():
            self.fail(RuntimeError("the run has ended its workers"))
        elif (error := part.exception()) is not None:
            self.fail(error)
        else:
            (tree,), (ticket,) = part.result().trees, self.wave.tickets
            with self._lock:
                if not self.grown.done():
                    of = part.result()
                    self.grown.set_result(Grown([of_ticket(tree, ticket)], of.computed, of.counted))

    def fail(self, error: BaseException) -> None:
        with self._lock:
            if not self.grown.done():
                self.grown.set_exception(error)


class FreeWorkers(Workers):
    """Its waves have one ticket each, and grow beside each other under the newest weights at each moment."""

    def __init__(self, settings: Processes, here: Grows, start: Mapping[str, Any]) -> None:
        super().__init__(settings, here, start)
        self.version = 0
        self.state: dict[str, Any] = {}
        """Of guides and graders, as the workers were last told."""
        self.growing: set[_Group] = set()
        self._numbers = count(1)
        self._over = threading.Event()

    def publish(self, version: int) -> None:
        # What is published before may be being read: it is kept until the next but one.
        self.reading = {0: self.snapshot}
        super().publish(version)
        self.version = version
        self._renew()

    def _renew(self) -> None:
        self.state = copy.deepcopy(dict(self.here.states()))
        said = {"what": "snapshot", "version": self.version, "weights": self.files, "state": self.state}
        content = pack(said)
        for worker in self.workers:
            worker.renew(content, [*self.files.values()])

    def start(self, wave: Wave, heard: object = None, begun: Begins = lambda version: None) -> Future[Grown]:
        """The tree of a wave of one ticket, by the worker that has the fewest; ``heard`` is not called."""
        if not same(
            without_tallies(self.here.states()), without_tallies(self.state)
        ):  # what learns from each step has, since it was published
            self._renew()
        group = _Group(wave, begun)
        self.growing.add(group)
        group.grown.add_done_callback(lambda _: self.growing.discard(group))
        self._ask(group)
        return group.grown

    def _ask(self, group: _Group) -> None:
        """Have a group grown by the worker that has the fewest, of those that have not been asked for it."""
        number = next(self._numbers)
        worker = min([each for each in self.workers if each not in group.asked] or self.workers, key=lambda w: w.load)
        group.asked, group.began = [*group.asked, worker], time.monotonic()
        part = worker.ask(number, packed(number, group.wave, {}), lambda counts: None, begun=group.begins)
        part.add_done_callback(group.finished)

    def _begin(self) -> Path:
        threading.Thread(target=self._watch, name="lyceum-stragglers", daemon=True).start()
        return super()._begin()

    def _watch(self) -> None:
        limit = self.settings.group_patience
        while not self._over.wait(min(1.0, limit / 4)):
            for group in list(self.growing):
                if time.monotonic() - group.began > limit:
                    self.hangs(group)

    def hangs(self, group: _Group) -> None:
        """Ask another worker for a group that takes too long: what it draws is the same there, and the first answer
        counts. One that hangs wherever it is grown ends the run."""
        task, limit = group.wave.tickets[0].task.id, self.settings.group_patience
        why = f"the group of task {task!r} was not finished within {limit:g} seconds (runtime.group_patience)"
        if len(group.asked) < TRIES:
            log.warning("%s: another worker begins it too", why)
            self._ask(group)
        else:
            group.fail(Straggler(f"runtime: {why}, {TRIES} times"))

    def close(self) -> None:
        self._over.set()
        super().close()
