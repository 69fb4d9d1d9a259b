"""Workers on the machines of a Ray cluster: the same workers, waves and guarantees as in :mod:`.processes`.

Ray finds the machines, counts their cores and GPUs, and carries snapshots to them, each once to a machine. Waves and
trees go over a socket from the run to each worker, as on one machine.
"""

from __future__ import annotations

import hmac
import importlib
import os
import queue
import secrets
import socket
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from lyceum.runtime._worker import GRACE, Machines, Process, Started
from lyceum.runtime.processes import Processes
from lyceum.runtime.wire import Message, receive
from lyceum.utils.child_processes import import_path
from lyceum.utils.errors import RecipeError, RunError

KEY_BYTES = 32
"""Length of the key by which a worker's connection is known."""
SAME = ("lyceum-rl", "torch", "transformers")
"""Packages whose versions must be the run's on every machine."""


class Ray(Processes):
    """In workers on the machines of a Ray cluster, with the guarantees of ``processes``: the same bits as there, where
    the machines compute alike.

    lyceum, in the same versions, and the files that the recipe names are found under the same paths on each machine. A
    worker that is lost, with its machine or without, is started again where there is room, and does its waves again.
    """

    kind: Literal["ray"] = "ray"  # pyright: ignore[reportIncompatibleVariableOverride]
    address: str | None = None
    """Of the cluster, such as ``10.0.0.1:6379`` or ``auto``; null: ``RAY_ADDRESS``, or one that runs on this machine,
    or one that is started on it and ended with the run."""
    gpus: float = Field(default=0.0, ge=0, le=64)
    """GPUs that Ray sets aside for each worker."""

    def threads_beside(self, threads: int) -> int:
        return 0  # the cluster says where they are

    def check_machines(self) -> list[str]:
        if find_spec("ray") is None:
            return ["runtime.kind: got 'ray', which is not installed; allowed: after pip install 'lyceum-rl[ray]'"]
        if self.devices is not None:
            return ["runtime.devices: got numbers of GPUs with Ray, which deals them itself; allowed: runtime.gpus"]
        return []

    def reach(self, threads: int) -> None:
        ray = connect(self.address)
        for what, each, has in (
            ("CPU", self.threads or threads, ray.cluster_resources().get("CPU", 0)),
            ("GPU", self.gpus, ray.cluster_resources().get("GPU", 0)),
        ):
            if self.workers * each > has:
                raise RecipeError(
                    f"runtime.workers: got {self.workers} of {each:g} {what}s each, and the Ray cluster has {has:g}; "
                    f"allowed: up to {int(has // each)}"
                )

    def machines(self, folder: Path, threads: int) -> Machines:
        return Cluster(self, folder, threads)


def connect(address: str | None) -> Any:
    """Ray, connected to its cluster.

    Raises:
        RecipeError: there is no such cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray: Any = importlib.import_module("ray")
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="warning")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RecipeError(
                f"runtime.address: no Ray cluster at {address or 'RAY_ADDRESS'!r} ({str(error)[:200]}); allowed: the "
                "address of one (ray start --head prints it), or none to start one on this machine"
            ) from error
    return ray


class Cluster:
    """The machines of a cluster, and the snapshots that they get. Implements :class:`.Machines`.

    Args:
        folder: of snapshots: under the same path on each machine.
        threads: of a worker.
    """

    def __init__(self, settings: Ray, folder: Path, threads: int) -> None:
        self.ray = ray = connect(settings.address)
        self.folder = folder
        self.listens_at: str = ray.util.get_node_ip_address()
        # Threads: one waits for the process to end while others bring snapshots. Spread: no machine is filled while
        # another is idle, since workers do not talk to each other.
        self.worker_hosts = ray.remote(WorkerHost).options(
            num_cpus=threads, num_gpus=settings.gpus, max_concurrency=4, scheduling_strategy="SPREAD"
        )
        self.started: list[Remote] = []
        self._stored: dict[str, Any] = {}
        """Files of snapshots -> Ray's references to their bytes."""
        self._lock = threading.Lock()

    def start(self, number: int) -> Process:
        remote = Remote(self)
        self.started = [each for each in self.started if not each.over.is_set()] + [remote]
        return remote

    def stored(self, file: str) -> Any:
        """Ray's reference to a file's bytes.

        Raises:
            FileNotFoundError: nobody needs it any more.
        """
        with self._lock:
            if file not in self._stored:
                self._stored[file] = self.ray.put(Path(file).read_bytes())
            return self._stored[file]

    def forget(self, files: Iterable[str]) -> None:
        gone = list(files)
        with self._lock:
            for file in gone:
                self._stored.pop(file, None)
        for remote in self.started:
            remote.forget(gone)


class Remote:
    """A worker's process on a machine of the cluster, and the actor that started it. Implements :class:`.Process`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.ray = cluster, cluster.ray
        self.over = threading.Event()
        self.actor: Any = cluster.worker_hosts.remote()
        self._connection = Future[Connection]()
        self._out = queue.SimpleQueue[tuple[bytes, Sequence[str]] | None]()
        self._why = ""
        threading.Thread(target=self._serve, name="lyceum-ray", daemon=True).start()

    def send(self, content: bytes, files: Sequence[str] = ()) -> None:
        self._out.put((content, files))

    def receive(self) -> Message:
        try:
            connection = self._connection.result()
        except CancelledError as error:
            raise EOFError(self._why) from error
        return receive(connection)

    def kill(self) -> None:
        self._end()
        self._ask(self.actor.kill)

    def wait(self) -> str:
        # What the actor says of the process; where it is lost too, what Ray says of that.
        said = self._ask(self.actor.wait)
        return said or f"was lost ({self._why or 'its machine does not answer'})"

    def last_words(self) -> list[str]:
        return self._ask(self.actor.last_words) or []

    def close(self) -> None:
        self._end()
        self._ask(self.actor.end, 2 * GRACE)
        with suppress(Exception):
            self.ray.kill(self.actor)

    def forget(self, files: Sequence[str]) -> None:
        with suppress(Exception):  # it may be lost
            self.actor.forget.remote(files)

    def _serve(self) -> None:
        """Send what is to be sent, in order, each with the files that it names before it."""
        try:
            connection = self._connected()
            if not self._connection.set_running_or_notify_cancel():
                return
            self._connection.set_result(connection)
            while (item := self._out.get()) is not None:
                content, files = item
                for file in self.ray.get(self.actor.missing.remote(list(files))):
                    with suppress(FileNotFoundError):  # nobody needs it any more, which the worker finds out too
                        self.ray.get(self.actor.take.remote(file, self.cluster.stored(file)))
                connection.send_bytes(content)
        except Exception as error:
            self._why = self._why or " ".join(str(error).split())[:300]
            self._end()

    def _connected(self) -> Connection:
        """The worker's connection: it knows the key that the actor was given.

        Raises:
            EOFError: it was ended before.
        """
        key = secrets.token_bytes(KEY_BYTES)
        with socket.create_server((self.cluster.listens_at, 0)) as server:
            server.settimeout(0.5)
            here = {name: version(name) for name in SAME}
            folders = str(self.cluster.folder), os.getcwd()
            begun = self.actor.start.remote(server.getsockname()[:2], key, import_path(), folders, here)
            while not self.over.is_set():
                with suppress(TimeoutError):
                    served, _ = server.accept()
                    if (connection := _known(served, key)) is not None:
                        return connection
                done, _ = self.ray.wait([begun], timeout=0)
                if done:
                    self.ray.get(begun)  # raises what it has failed with
        raise EOFError("it was ended")

    def _end(self) -> None:
        """Close the connection: the worker ends by it, and who receives reads an end."""
        self.over.set()
        self._out.put(None)
        if self._connection.cancel():
            return
        with suppress(OSError), socket.socket(fileno=os.dup(self._connection.result().fileno())) as of:
            of.shutdown(socket.SHUT_RDWR)

    def _ask(self, method: Any, seconds: float = GRACE) -> Any:
        """What the actor answers; None where it is lost."""
        try:
            return self.ray.get(method.remote(), timeout=seconds)
        except Exception as error:
            self._why = self._why or " ".join(str(error).split())[:300]
            return None


def _known(served: socket.socket, key: bytes) -> Connection | None:
    """The connection of who sends the key; None for anybody else."""
    served.settimeout(GRACE)
    got = b""
    with suppress(OSError):
        while len(got) < len(key) and (more := served.recv(len(key) - len(got))):
            got += more
    if not hmac.compare_digest(got, key):
        served.close()
        return None
    served.settimeout(None)
    served.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(served.detach())


class WorkerHost:
    """On the machine of a worker: starts it, brings it snapshots, says how it ended. An actor of Ray's."""

    def start(
        self,
        address: tuple[str, int],
        key: bytes,
        path: Sequence[str],
        folders: tuple[str, str],
        versions: Mapping[str, str],
    ) -> None:
        """
        Args:
            address: where the run listens.
            key: by which it knows the worker.
            path: where the run imports from.
            folders: of snapshots, and the one that the run works in.
            versions: of the run's packages.
        Raises:
            RunError: this machine lacks what the run has.
        """
        name, (snapshots, working) = socket.gethostname(), folders
        if differing := [
            f"{of} {version(of)}, not {wanted}" for of, wanted in versions.items() if version(of) != wanted
        ]:
            raise RunError(f"runtime: the machine {name} has {', '.join(differing)}; install the run's versions there")
        if not Path(working).is_dir():
            raise RunError(f"runtime: the machine {name} has no folder {working}; the run's files are needed there too")
        Path(snapshots).mkdir(mode=0o700, parents=True, exist_ok=True)
        served = socket.create_connection(address, timeout=10 * GRACE)
        served.sendall(key)
        served.settimeout(None)
        served.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there = [entry for entry in path if not entry or Path(entry).exists()]
        self.process = Started(served, [*there, *(entry for entry in sys.path if entry not in there)], working)

    def missing(self, files: Sequence[str]) -> list[str]:
        """Those of the files that are not here."""
        return [file for file in files if not Path(file).exists()]

    def take(self, file: str, content: bytes) -> None:
        """Keep a file of a snapshot, which is there whole or not at all."""
        part = f"{file}.{os.getpid()}"
        Path(part).write_bytes(content)
        os.replace(part, file)

    def forget(self, files: Sequence[str]) -> None:
        for file in files:
            Path(file).unlink(missing_ok=True)

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> str:
        return self.process.wait()

    def last_words(self) -> list[str]:
        return self.process.last_words()

    def end(self) -> None:
        self.process.end()
