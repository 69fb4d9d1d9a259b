"""Groups that a step trains as they have finished, none older than a bound that waiting keeps (``order: ready``)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lyceum.core.component import require_keys
from lyceum.core.group import Group
from lyceum.core.tree import Tree
from lyceum.core.waves import Grown, RunsAhead, RunsBeside, Ticket, Wave
from lyceum.runtime.admission import may_begin, should_begin, to_train
from lyceum.runtime.wire import pack, unpack
from lyceum.training.stages._groups import group_of, trees_of
from lyceum.training.stages._sampling import Sampler
from lyceum.utils.atomic_files import atomic_write, remove
from lyceum.utils.numbers import mean

if TYPE_CHECKING:
    from lyceum.training.stages.online import Online


NUMBER = "group"
"""Under which a tree's ``metadata`` says which group of the stage it is, in the order drawn."""


@dataclass(eq=False)
class Begun:
    """A group that has begun.

    Attributes:
        number: in the order drawn in the stage; each is trained once, or dropped by ``collect``.
        wave: of its ticket alone.
        version: updates of the stage that were done as its first token was drawn, or fewer while that is not known.
        waits: for a place in a worker.
    """

    number: int
    wave: Wave
    version: int
    waits: bool = True
    grown: Future[Grown] = field(default_factory=Future)
    tree: Tree | None = None


class ReadyGroups:
    """Groups in the order in which they finish, as far as the bound on their staleness lets.

    What is finished is stored as files, as it comes: a killed run that is resumed samples only those groups again that
    were under way, or were finished under weights newer than the checkpoint's, which are lost with the run.
    """

    def __init__(self, stage: Online, first_step: int, sampler: Sampler, folder: Path) -> None:
        self.stage, self.first_step, self.sampler, self.folder = stage, first_step, sampler, folder
        self.drawn = 0
        """Groups of the stage: the next one's number."""
        self.again: list[tuple[int, Wave]] = []
        """Drawn by a run that was stopped, and not trained by it."""
        self.running: list[Begun] = []
        self.ready: list[Begun] = []
        """Finished, and to be trained."""
        self.dropped: list[Tree] = []
        """Finished since the last step, and dropped by ``collect``."""
        self.finished = 0
        """Groups that have finished since the last step."""
        self.trained: list[int] = []
        self.trained_before: list[int] = []
        """Numbers that were trained or dropped since the last checkpoint, and before it: the files of the latter are
        needed no more."""
        self.saved = first_step
        """Version of the weights that a run which is killed goes on from."""
        self._lock = threading.Lock()
        self.lengths: dict[str, list[float]] = {"trained": [0, 0.0], "drawn": [0, 0.0]}
        """Groups so far, and the sum of their completions' mean lengths (tokens)."""
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        """Who waits for groups to begin or to finish, and what is set then."""
        self._taken_at: float | None = None
        self._idle = self._interrupted = 0.0

    @property
    def untrained(self) -> int:
        """Groups that were drawn and are neither trained nor dropped."""
        return len(self.again) + len(self.running) + len(self.ready)

    @property
    def untrained_tokens(self) -> int:
        finished = (tree for each in self.running for tree in trees_of(each.grown))
        return sum(tree.sampled_tokens for tree in (*finished, *(each.tree for each in self.ready if each.tree)))

    async def take(self, done: int, size: int) -> list[Group]:
        began = time.perf_counter()
        session = self.sampler.session
        with session.run.timed("generate"):
            chosen = await self._chosen(done, size)
        now = time.perf_counter()
        self._idle = (now - began) / (now - (began if self._taken_at is None else self._taken_at) or 1.0)
        self._taken_at = now
        self.ready = [each for each in self.ready if each not in chosen]
        self.trained += [each.number for each in chosen]
        trees = [each.tree for each in chosen if each.tree is not None]
        self._interrupted = mean([len({*versions(tree)}) > 1 for tree in trees]) if trees else 0.0
        self._measure("trained", trees)
        dropped, self.dropped, self.finished = self.dropped, [], 0
        return [group_of(tree, self.stage, self.sampler) for tree in (*trees, *dropped)]

    async def _chosen(self, done: int, size: int) -> list[Begun]:
        """The groups of a step, once they are finished and may be trained before all others."""
        bound, collect = self.stage.runtime.lag, self.stage.collect
        news = asyncio.Event()
        self._waiter = asyncio.get_running_loop(), news
        while True:
            news.clear()
            self._collect()
            # As with other orders, a step may have fewer groups where too many in a row are dropped.
            enough = collect.keep != "all" and self.finished >= collect.max_waves * size
            if not enough:
                self._begin(done, size)
            self.sampler.session.progress.phase("generating", min(len(self.ready), size), size)
            chosen = to_train(
                [each.version + bound for each in self.ready],
                [each.version + bound for each in self.running],
                done,
                size=size,
                least=0 if enough or not self.running else None,
            )
            if chosen is not None:
                self._waiter = None
                return [self.ready[i] for i in chosen]
            await news.wait()

    def _tell(self, _: object = None) -> None:
        """Wake who waits. Called in any thread."""
        if (waiter := self._waiter) is not None:
            loop, news = waiter
            with suppress(RuntimeError):  # the loop is closed: the run has ended
                loop.call_soon_threadsafe(news.set)

    def _begin(self, done: int, size: int) -> None:
        """Draw and begin as many groups as may."""
        version = self.first_step + done
        again, self.again = self.again, []
        for number, wave in again:
            self._start(number, Wave(wave.key, wave.step, wave.progress, version, wave.tickets), done)
        bound = self.stage.runtime.lag
        outstanding = len(self.running) + len(self.ready)
        may = may_begin(outstanding, done, steps=self.sampler.steps, size=size, staleness=bound)
        new = should_begin(may, len(self.ready), sum(each.waits for each in self.running), size=size)
        if not new or self.sampler.spent:
            return
        drawn = self.sampler.wave(new, key=(self.first_step, done), step=done)
        for ticket in drawn.tickets:
            key = ("group", self.first_step, self.drawn)
            self._start(self.drawn, Wave(key, done, drawn.progress, version, (Ticket(ticket.task, 0),)), done)
            self.drawn += 1

    def _start(self, number: int, wave: Wave, done: int) -> None:
        begun = Begun(number, wave, done)
        self.running.append(begun)
        if (stored := self._stored(begun, wave.version)) is not None:
            begun.grown.set_result(stored)
            self._tell()
            return

        def begins(version: int) -> None:
            begun.version, begun.waits = version - self.first_step, False
            self._tell()

        begun.grown = cast(RunsBeside, self.sampler.runtime).start(wave, begun=begins)
        begun.grown.add_done_callback(partial(self._store, number))
        begun.grown.add_done_callback(self._tell)

    def _collect(self) -> None:
        """Take in what has finished."""
        for each in [each for each in self.running if each.grown.done()]:
            (each.tree,) = self.sampler.finished(each.grown.result())
            each.tree.metadata[NUMBER] = each.number
            self.running.remove(each)
            self.finished += 1
            if not self.stage.collect.keeps(each.tree):
                self.dropped.append(each.tree)
                self.trained.append(each.number)
                continue
            each.version = min(versions(each.tree), default=self.first_step + each.version) - self.first_step
            self._measure("drawn", [each.tree])
            self.ready.append(each)
        self.ready.sort(key=lambda each: each.number)

    def _measure(self, what: str, trees: Sequence[Tree]) -> None:
        for tree in trees:
            if tree.trajectories:
                self.lengths[what][0] += 1
                self.lengths[what][1] += mean([leaf.episode_tokens for leaf in tree.trajectories])

    def observe(self, done: int, groups: Sequence[Group]) -> None:
        self.sampler.observe([group.tree for group in groups if group.sampled])

    def metrics(self) -> dict[str, float]:
        metrics = {"idle/learner": self._idle, "ahead/running": len(self.running), "ahead/ready": len(self.ready)}
        metrics["ahead/interrupted"] = self._interrupted
        if (workers := cast(RunsAhead, self.sampler.runtime).idle()) is not None:
            metrics["idle/workers"] = workers
        (trained, of_trained), (drawn, of_drawn) = self.lengths["trained"], self.lengths["drawn"]
        if trained and of_drawn:
            metrics["length/trained_to_drawn"] = of_trained / trained / (of_drawn / drawn)
        return metrics

    # Finished groups as files --------------------------------------------------------------------------------------

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.group"

    def _store(self, number: int, grown: Future[Grown]) -> None:
        """A finished group, where a run that goes on from the checkpoint could use it. Called in the thread that hears
        of it, so that it is done while the run learns."""
        if grown.exception() is None and max(versions(grown.result().trees[0]), default=self.saved) <= self.saved:
            with self._lock:
                self._write(number, grown.result())

    def _write(self, number: int, grown: Grown) -> None:
        if not (file := self._file(number)).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            said = {"computed": grown.computed, "counted": dict(grown.counted)}
            atomic_write(file, pack(said, grown.trees), durable=False)

    def _stored(self, begun: Begun, version: int) -> Grown | None:
        """What a run that was stopped had finished of a group; None where there is nothing, or not all of it was drawn
        under weights that are there."""
        from lyceum.run.trees import dump_task  # here: imports pyarrow

        file, (ticket,) = self._file(begun.number), begun.wave.tickets
        if not file.exists():
            return None
        with suppress(ValueError):  # cut off, where the machine had no current
            said, (tree,) = unpack(file.read_bytes())
            if dump_task(tree.task) == dump_task(ticket.task) and max(versions(tree), default=version) <= version:
                tree.task = ticket.task
                return Grown([tree], said["computed"], said["counted"])
        file.unlink()
        return None

    def state_dict(self) -> dict[str, Any]:
        from lyceum.run.trees import dump_task  # here: imports pyarrow

        for number in self.trained_before:
            self._file(number).unlink(missing_ok=True)
        self.trained_before, self.trained = self.trained, []
        with self._lock:
            self.saved = self.sampler.engine.version
            for each in (*self.running, *self.ready):
                if each.grown.done():
                    self._write(each.number, each.grown.result())
        drawn = [(each.number, each.wave) for each in (*self.running, *self.ready)] + self.again
        return {
            "drawn": self.drawn,
            "again": [
                (number, wave.key, wave.step, wave.progress, dump_task(wave.tickets[0].task))
                for number, wave in sorted(drawn, key=lambda each: each[0])
            ],
            "trained": list(self.trained_before),
            "saved": self.saved,
            "lengths": {name: list(sums) for name, sums in self.lengths.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        from lyceum.run.trees import load_task  # here: imports pyarrow

        require_keys("stage.source", given=state, needed=("drawn", "again", "trained", "saved", "lengths"))
        self.drawn, self.trained_before = int(state["drawn"]), list(state["trained"])
        self.again = [
            (number, Wave(key, step, progress, 0, (Ticket(load_task(task), 0),)))
            for number, key, step, progress, task in state["again"]
        ]
        self.lengths = {name: list(sums) for name, sums in state["lengths"].items()}
        self.saved = int(state["saved"])

    def end(self) -> None:
        remove(self.folder)


def versions(tree: Tree) -> list[int]:
    """Of the weights that its tokens were drawn under."""
    return [version for node in tree.nodes() for version in node.version]
