"""Workers that grow groups beside each other, each under the newest weights at every moment (``order: ready``).

A worker takes new weights between two tokens. A group that begins after a snapshot was published begins under it or a
newer one: messages are read in the order sent. Groups of a worker that is lost begin again in its successor.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from lyceum.core.waves import Grown, Grows, Wave
from lyceum.runtime.processes import Part, Processes, Workers, of_ticket, packed, same
from lyceum.runtime.wire import pack


class FreeWorkers(Workers):
    """Implements :class:`lyceum.core.waves.RunsFreely`."""

    def __init__(self, settings: Processes, here: Grows, start: Mapping[str, Any]) -> None:
        super().__init__(settings, here, start)
        self.version = 0
        self.state: dict[str, Any] = {}
        """Of guides and graders, as the workers were last told."""

    def publish(self, version: int) -> None:
        # What is published before may be being read: it is kept until the next but one.
        self.reading = {} if self.snapshot is None else {0: self.snapshot}
        super().publish(version)
        self.version = version
        self._renew()

    def _renew(self) -> None:
        self.state = copy.deepcopy(dict(self.here.state_dict()))
        said = {"what": "snapshot", "version": self.version, "weights": str(self.snapshot), "state": self.state}
        content = pack(said)
        for worker in self.workers:
            worker.renew(content)

    def start(self, wave: Wave, heard: object = None) -> Future[Grown]:
        """The tree of a wave of one ticket, by the worker that has the fewest; ``heard`` is not called."""
        if not same(self.here.state_dict(), self.state):  # what learns from each step has, since it was published
            self._renew()
        self.waves += 1
        (ticket,) = wave.tickets
        grown: Future[Grown] = Future()
        grown.set_running_or_notify_cancel()

        def finished(part: Future[Part]) -> None:
            if part.cancelled():
                grown.set_exception(RuntimeError("the run has ended its workers"))
            elif (error := part.exception()) is not None:
                grown.set_exception(error)
            else:
                (tree,) = part.result().trees
                grown.set_result(Grown([of_ticket(tree, ticket)], part.result().computed))

        worker = min(self.workers, key=lambda each: each.load)
        worker.ask(self.waves, packed(self.waves, wave, {}), lambda counts: None).add_done_callback(finished)
        return grown

    def idle(self) -> float | None:
        blocked, lived = (sum(getattr(worker, what) for worker in self.workers) for what in ("blocked", "lived"))
        for worker in self.workers:
            worker.blocked = worker.lived = 0.0
        return blocked / lived if lived else None
