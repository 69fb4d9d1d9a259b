"""Workers: processes of this machine that grow trees, each a function of the recipe, a snapshot and a wave.

Waves are dealt by number and never by who is free, so that the same bits come whatever the clock does. A worker that is
lost is started again and does its waves again whole, under the snapshots that they name. (``order: ready`` gives that
up: :mod:`lyceum.runtime.ready`.)
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from lyceum.core import paper_folders
from lyceum.core.settings import Composition, RuntimeSettings
from lyceum.core.tallies import without_tallies
from lyceum.core.tree import Tree
from lyceum.core.types import State
from lyceum.core.waves import Done, Grown, Grows, RunsAhead, Ticket, Wave
from lyceum.models.weights import storable
from lyceum.reward.base import passed_in_here
from lyceum.run.codec import decode, encode
from lyceum.runtime._worker import Heard, Machines, ThisMachine, Worker
from lyceum.runtime.wire import Message, Part, pack
from lyceum.utils import progress as display
from lyceum.utils.errors import RunError
from lyceum.utils.lazy_imports import torch
from lyceum.utils.threads import usable_cores

log = logging.getLogger(__name__)

OF_ORDER = ("staleness", "order", "under_way", "at_once", "ratio")
"""Settings that say how far workers may be ahead."""


class Processes(RuntimeSettings):
    """In worker processes on this machine, synchronously or ahead of the training.

    With ``staleness`` 0 and one worker a run is the same, bit for bit, as in one process. With ``staleness`` k the
    groups of a step are sampled under the weights of k updates before, always: what is trained does not depend on how
    long anything took; a worker draws the next wave while one is graded, where grading needs no model that changes.
    Several workers share each wave, its groups dealt in turn; the batches differ from those of one worker, and so do
    last bits. With ``order`` ready a step trains the groups that have finished, none more than k updates old: nothing
    waits for the slowest group of a step, and no two runs are the same.
    """

    kind: Literal["processes"] = "processes"
    workers: int = Field(default=1, ge=1, le=1024)
    """Number of processes. Each loads the model."""
    staleness: int = Field(default=0, ge=0, le=64)
    """Updates by which the weights that a step trains are newer than those its groups were sampled under (no unit):
    with ``order`` fixed always so many, but for groups in place of dropped ones; with ready at most. 0: generation and
    training take turns."""
    order: Literal["fixed", "ready"] = "fixed"
    """Which groups a step trains: ``fixed``, those of its number, so that the clock changes nothing; ``ready``, those
    that have finished, the oldest first, as soon as no other could become older than ``staleness`` by it. Nothing is
    discarded for its age."""
    under_way: Literal["recompute", "keep"] = "recompute"
    """What becomes of completions under way as new weights arrive (order ``ready``): they go on under these, with
    caches computed again, so that each token's log-probability is that of the version it names; or with ``keep`` as
    they were. That saves one forward pass over what is under way per update, and costs that later tokens are drawn from
    neither version: measured, they are off by 60 to 70 % of the distance between the two, and nothing corrects for it.
    """
    at_once: int | None = Field(default=None, ge=1)
    """Groups that a worker draws at a time (order ``ready``); further ones wait in it, and begin under its newest
    weights. Null: as many as a step trains. More keep a worker busier whose rollouts wait for tools, and make groups
    older."""
    ratio: Literal["step", "behaviour"] = "step"
    """What importance ratios are relative to: the policy at the start of the step, or the log-probabilities under which
    tokens were sampled."""
    devices: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(default=None, min_length=1)
    """GPUs of the workers, by their numbers, dealt in turn, such as [1, 2, 3] beside a run that trains on the first; a
    worker sees its own alone. Null: all see those of the run."""
    threads: int | None = Field(default=None, ge=1)
    """Threads of a worker; null: as many as the run has."""
    patience: float = Field(default=600.0, gt=0)
    """Seconds without a word from a worker that has work, after which it is ended and started again."""
    group_patience: float = Field(default=3600.0, gt=0)
    """Seconds after which a group that is not finished is given to another worker too (order ``ready``; in fixed order
    nothing is heard of a worker with a group that hangs, so that ``patience`` is its limit). The first answer counts;
    what is drawn is the same. A group that is not finished in three tries ends the run."""

    @property
    def lag(self) -> int:
        return self.staleness

    @property
    def off_policy(self) -> bool:
        return self.ratio == "behaviour"

    @property
    def as_finished(self) -> bool:
        return self.order == "ready"

    def in_turn(self) -> Self:
        own = type(self).model_fields
        return self.model_copy(update={name: own[name].default for name in OF_ORDER})

    def check(self, stage: Composition) -> list[str]:
        lines = self.check_machines()
        got = f"runtime.kind: got {self.kind!r}"
        lines += passed_in_here(got, "runtime.kind in-process", stage.reward, stage.rollout, stage.guidance)
        if stage.engine is not None and "one-model" in stage.engine.offers:
            lines.append(
                f"engine.kind: got {stage.engine.kind!r} with runtime.kind {self.kind!r}, one in each; allowed: "
                "embedded, or runtime.kind in-process"
            )
        if stage.learner is not None and "processes" in stage.learner.offers:
            lines.append(
                f"learner.kind: got {stage.learner.kind!r} with runtime.kind {self.kind!r}; allowed: local, or "
                "runtime.kind in-process"
            )
        of = stage.runtime
        ahead = of._check_ahead(stage) if isinstance(of, Processes) and of.staleness else []
        return lines + (of._check_order(stage) if isinstance(of, Processes) else []) + ahead

    def threads_beside(self, threads: int) -> int:
        return self.workers * (self.threads or threads)

    def check_machines(self) -> list[str]:
        """Why there cannot be so many workers here."""
        cores = usable_cores()
        if self.workers > cores:
            return [f"runtime.workers: got {self.workers} on {cores} cores; allowed: 1 to {cores}"]
        gpus = 0 if self.devices is None else torch.cuda.device_count()
        if self.devices is not None and max(self.devices) >= gpus:
            numbers = f"numbers from 0 to {gpus - 1}, or null" if gpus else "null"
            return [f"runtime.devices: got {list(self.devices)} on a machine with {gpus} GPUs; allowed: {numbers}"]
        return []

    def _check_order(self, stage: Composition) -> list[str]:
        lines: list[str] = []
        if not self.as_finished:
            only = [f"under_way: got {self.under_way!r}"] if self.under_way != "recompute" else []
            only += [f"at_once: got {self.at_once}"] if self.at_once is not None else []
            return [
                f"runtime.{got} with runtime.order 'fixed', where each wave is sampled under weights of its own; "
                "allowed: the default, or runtime.order=ready"
                for got in only
            ]
        if not self.staleness:
            lines.append(
                "runtime.order: got 'ready' with runtime.staleness 0, where a step waits for all of its groups; "
                "allowed: fixed, or runtime.staleness of 1 or more"
            )
        if stage.engine is not None and "interrupt" not in stage.engine.offers:
            lines.append(
                f"engine.kind: got {stage.engine.kind!r} with runtime.order 'ready', which takes no new weights while "
                "samples are under way; allowed: embedded, or runtime.order=fixed"
            )
        return lines

    def _check_ahead(self, stage: Composition) -> list[str]:
        got = f"runtime.staleness: got {self.staleness}"
        lines: list[str] = []
        importance = getattr(stage.objective, "importance", None)
        corrected = self.off_policy or (importance is not None and importance.mode != "none")
        if not corrected:
            lines.append(
                f"{got}, but nothing corrects for tokens that older weights drew; allowed: 0, or "
                "runtime.ratio=behaviour (ratios against the weights that drew them), or objective.importance.mode="
                "truncate (weights beside the ratios)"
            )
        if stage.rollout is not None and "unfinished" in stage.rollout.offers:
            lines.append(f"{got} with rollout {stage.rollout.kind!r}, whose trees span steps; allowed: 0")
        if stage.replay is not None:
            lines.append(f"{got} with replay {stage.replay.kind!r}; allowed: 0, or no replay")
        return lines

    def machines(self, folder: Path, threads: int) -> Machines:
        """Where workers run.

        Args:
            folder: of snapshots.
            threads: of a worker.
        """
        if self.devices is None:
            return ThisMachine()
        # The run's own numbers, where it sees a part of the machine's GPUs.
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = None if not seen else seen.split(",")
        return ThisMachine([str(number) if names is None else names[number].strip() for number in self.devices])

    def build(self, here: Grows, start: Callable[[], Mapping[str, Any]]) -> RunsAhead:
        if not self.as_finished:
            return Workers(self, here, start())
        from lyceum.runtime.ready import FreeWorkers  # here: it is made of this file's workers

        return FreeWorkers(self, here, start())


class Workers:
    """A stage's workers, and the snapshots that they read. Implements :class:`lyceum.core.waves.RunsAhead`.

    Args:
        here: whose module is published, and whose guides' and graders' state workers grow with.
        start: what each is told: the resolved recipe, and which stage of it.
        key: of the recipe, that says how many there are.
    """

    def __init__(self, settings: Processes, here: Grows, start: Mapping[str, Any], *, key: str = "runtime") -> None:
        self.settings, self.here, self.key = settings, here, key
        self.machines: Machines = ThisMachine()
        self.folder: Path | None = None
        """Of the snapshots, once something is published: a stage that is built may never run."""
        self.snapshot: Mapping[str, Path] = {}
        """The newest: each model's file, by its name."""
        self.published: set[Path] = set()
        """Whole files that are there: one that is being written is nobody's to take away."""
        self.told = {**start, "threads": settings.threads or start["threads"]}
        self.told["papers"] = paper_folders.options()[1::2]
        self.workers: list[Worker] = []
        self.waves = 0
        self.reading: dict[int, Mapping[str, Path]] = {}
        """Waves under way -> the snapshots that they need."""
        self._lock = threading.Lock()

    def publish(self, version: int) -> None:
        if self.folder is None:
            self.folder = self._begin()
        snapshot: dict[str, Path] = {}
        for name, state in self.here.models().items():
            if name in self.here.constant and name in self.snapshot:
                snapshot[name] = self.snapshot[name]
            else:
                snapshot[name] = self.folder / f"{version}-{name}.safetensors"
                write_state(snapshot[name], state)
        with self._lock:
            self.snapshot = snapshot
            self.published |= {*snapshot.values()}
            self._forget()

    async def started(self, tell: Callable[[int, int], None]) -> None:
        while (ready := sum(worker.ready for worker in self.workers)) < len(self.workers):
            tell(ready, len(self.workers))
            await asyncio.sleep(0.05)

    @property
    def files(self) -> dict[str, str]:
        """The newest snapshot, as messages name it."""
        return {name: str(file) for name, file in self.snapshot.items()}

    def _begin(self) -> Path:
        # Shared memory where there is some; the last worker to end takes it away, however this process ends.
        shared = Path("/dev/shm")
        at = shared if shared.is_dir() and os.access(shared, os.W_OK) else None
        folder = Path(tempfile.mkdtemp(prefix=f"lyceum-snapshots-{os.getpid()}-", dir=at))
        told = {**self.told, "snapshots": str(folder)}
        self.machines = self.settings.machines(folder, told["threads"])
        self.workers = [
            Worker(number, told, self.settings.patience, self.machines, self.key)
            for number in range(self.settings.workers)
        ]
        return folder

    def _forget(self) -> None:
        """Take away snapshots that no wave needs."""
        needed = {file for snapshot in (self.snapshot, *self.reading.values()) for file in snapshot.values()}
        gone = self.published - needed
        for file in gone:
            file.unlink()
        self.machines.forget(map(str, gone))
        self.published &= needed

    async def grow(self, wave: Wave, done: Done) -> Grown:
        loop = asyncio.get_running_loop()
        raised: asyncio.Future[Grown] = loop.create_future()

        def one() -> None:
            try:
                done()
            except Exception as error:  # here nobody waits
                if not raised.done():
                    raised.set_exception(error)

        def heard(counts: Mapping[str, int] | None) -> None:
            # In the run's own thread: what is displayed is not for several.
            with suppress(RuntimeError):  # the loop is closed: the run has ended
                loop.call_soon_threadsafe(one if counts is None else partial(display.sampled, **counts))

        grown = asyncio.wrap_future(self.start(wave, heard))
        try:
            await asyncio.wait((grown, raised), return_when=asyncio.FIRST_COMPLETED)
            return raised.result() if raised.done() else grown.result()
        finally:
            grown.cancel()

    def start(self, wave: Wave, heard: Heard = lambda counts: None) -> Future[Grown]:
        self.waves += 1
        number = self.waves
        with self._lock:
            self.reading[number] = self.snapshot
        state = copy.deepcopy(self.here.states())  # what it names may be changed while the wave grows
        shares = [wave.tickets[place :: len(self.workers)] for place in range(len(self.workers))]
        parts: list[Future[Part] | None] = []
        for worker, tickets in zip(self.workers, shares, strict=True):
            more = {"weights": self.files, "state": state}
            content = packed(number, replace(wave, tickets=tickets), more)
            parts.append(worker.ask(number, content, heard, [*self.files.values()]) if tickets else None)
        return _Joined(self, wave, number, state, parts).grown

    def joined(self, wave: Wave, number: int, state: Mapping[str, Any], parts: Sequence[Part | None]) -> Grown:
        """The trees of a wave, in the order of its tickets.

        Raises:
            RunError: a guide or a grader has changed while trees grew, and nobody can say which change counts.
        """
        with self._lock:
            self.reading.pop(number)
            self._forget()
        grown = [part for part in parts if part is not None]
        counted: Counter[str] = Counter()
        for part in grown:
            counted.update(part.counted)
        before = without_tallies(state)
        changed = next((part.state for part in grown if not same(without_tallies(part.state), before)), None)
        if changed is not None:
            if len(self.workers) > 1 or self.settings.staleness:
                ahead = f" and {self.key}.staleness=0" if self.settings.staleness else ""
                raise RunError(
                    f"{self.key}: {what_differs(changed, state)} changes while trees grow, which several workers, or "
                    f"staleness above 0, cannot do in one order; allowed: {self.key}.workers=1{ahead}"
                )
            self.here.load_states(changed)
            counted.clear()  # it has what was counted
        trees: list[Tree] = []
        for place, ticket in enumerate(wave.tickets):
            part = parts[place % len(parts)]
            assert part is not None
            trees.append(of_ticket(part.trees[place // len(parts)], ticket))
        return Grown(trees, sum(part.computed for part in grown), counted)

    def idle(self) -> float | None:
        blocked, lived = (sum(getattr(worker, what) for worker in self.workers) for what in ("blocked", "lived"))
        for worker in self.workers:
            worker.blocked = worker.lived = 0.0
        return blocked / lived if lived else None

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class _Joined:
    """Waits for all parts of a wave."""

    def __init__(
        self,
        workers: Workers,
        wave: Wave,
        number: int,
        state: Mapping[str, Any],
        parts: Sequence[Future[Part] | None],
    ) -> None:
        self.grown: Future[Grown] = Future()
        self._arguments = workers, wave, number, state
        self._parts = parts
        asked = [part for part in parts if part is not None]
        self._left = len(asked)
        self._lock = threading.Lock()
        if not asked:
            self._end()
        for part in asked:
            part.add_done_callback(self._one)

    def _one(self, _: Future[Part]) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._end()

    def _end(self) -> None:
        if not self.grown.set_running_or_notify_cancel():
            return
        workers, wave, number, state = self._arguments
        try:
            parts = [None if part is None else part.result() for part in self._parts]
            self.grown.set_result(workers.joined(wave, number, state, parts))
        except BaseException as error:
            self.grown.set_exception(error)


def packed(number: int, wave: Wave, more: Mapping[str, Any]) -> bytes:
    """A wave as a message to a worker, which :func:`unpacked` reads."""
    from lyceum.run.trees import dump_task  # here: imports pyarrow

    said = {
        "what": "wave",
        "wave": number,
        "key": wave.key,
        "step": wave.step,
        "progress": wave.progress,
        "version": wave.version,
        "tickets": [(None if t.tree is not None else dump_task(t.task), t.number) for t in wave.tickets],
        **more,
    }
    return pack(said, [ticket.tree for ticket in wave.tickets if ticket.tree is not None])


def unpacked(message: Message) -> Wave:
    from lyceum.run.trees import load_task  # here: imports pyarrow

    said, under_way = message.said, iter(message.trees)
    tickets: list[Ticket] = []
    for text, number in said["tickets"]:
        if text is None:
            tree = next(under_way)
            tickets.append(Ticket(tree.task, number, tree))
        else:
            tickets.append(Ticket(load_task(text), number))
    return Wave(said["key"], said["step"], said["progress"], said["version"], tuple(tickets))


def of_ticket(tree: Tree, ticket: Ticket) -> Tree:
    """A tree that came back, of the task itself: what drew it may know it by that."""
    from lyceum.run.trees import dump_task  # here: imports pyarrow

    if dump_task(tree.task) == dump_task(ticket.task):
        tree.task = ticket.task
    return tree


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two states are equal, tensors bit for bit."""
    (text, tensors), (others_text, others) = encode(one), encode(other)
    return text == others_text and all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())


def what_differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Which part of a state is not equal."""
    found = [name for name in one if not same({name: one[name]}, {name: other.get(name)})]
    return " and ".join(found) or "a state"


def write_state(file: Path, state: State) -> None:
    from safetensors.torch import save_file

    text, tensors = encode(state)
    save_file(storable(tensors), file, metadata={"state": text})


def read_state(file: str | Path) -> State:
    """What :func:`write_state` has written."""
    from safetensors import safe_open

    with safe_open(file, "pt") as of:
        return decode(of.metadata()["state"], {name: of.get_tensor(name) for name in of.keys()})  # noqa: SIM118
