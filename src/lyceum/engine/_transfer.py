"""How weights reach vLLM servers: as a file that they read, or by the trainer's side of vLLM's own NCCL and CUDA IPC.

pause -> start_weight_update -> update_weights -> finish_weight_update -> resume        each with a time-out
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lyceum.engine.vllm import named_weights
from lyceum.engine.vllm_plugin import BACKEND
from lyceum.models.weights import storable
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.numbers import to_json

if TYPE_CHECKING:
    from lyceum.engine._servers import VllmServer

    Weights = torch.nn.Module | Mapping[str, Tensor]

How = Literal["files", "nccl", "ipc"]


@dataclass(frozen=True)
class Published:
    """One version's weights, as servers are given them.

    Attributes:
        label: under which servers report it; no other publication of any run has the same.
        digest: equal where the weights are.
        file: that has them, where they go by files.
    """

    label: str
    digest: str
    weights: Weights
    dtype: str
    file: Path | None = None

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """The weights by the names of the model's files, in the servers' data type."""
        weights, dtype = self.weights, getattr(torch, self.dtype)
        for name, weight in weights.items() if isinstance(weights, Mapping) else named_weights(weights):
            yield name, weight.detach().to(dtype)


class Transfer(Protocol):
    """
    Attributes:
        backend: its name for ``vllm serve --weight-transfer-config``.
        environment: variables that a server needs for it.
    """

    backend: str
    environment: Mapping[str, str]

    def publish(self, label: str, weights: Weights, dtype: str) -> Published: ...

    def send(self, server: VllmServer, published: Published) -> None:
        """Give a paused server the weights; raises ServerFailure."""
        ...


def transfer_by(how: How, folder: Path | None, timeout: float) -> Transfer:
    return WeightFiles(folder) if how == "files" else FromTrainer(how, timeout)


class Client:
    """vLLM's ``VLLMWeightSyncClient``: what one server is told during an update."""

    def __init__(self, server: VllmServer) -> None:
        self.server, self.label = server, ""

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.server.call("POST", "/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self.server.call("POST", "/start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self.server.call("POST", "/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.server.call("POST", "/finish_weight_update", {"weight_version": weight_version or self.label})


class WeightFiles:
    """A safetensors file per version, in shared memory or a folder that all servers read, checked by its SHA-256."""

    backend = BACKEND
    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path | None) -> None:
        shared = Path("/dev/shm")
        at = folder or (shared if shared.is_dir() and os.access(shared, os.W_OK) else None)
        self.folder = Path(tempfile.mkdtemp(prefix=f"lyceum-weights-{os.getpid()}-", dir=at))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def publish(self, label: str, weights: Weights, dtype: str) -> Published:
        from safetensors.torch import save_file

        before, file = list(self.folder.iterdir()), self.folder / f"{label}.safetensors"
        named = Published(label, "", weights, dtype).named()
        save_file(storable({name: weight.cpu() for name, weight in named}), file)  # off the device one by one
        for old in before:
            old.unlink()
        with file.open("rb") as content:
            return Published(label, hashlib.file_digest(content, "sha256").hexdigest(), weights, dtype, file)

    def send(self, server: VllmServer, published: Published) -> None:
        client = Client(server)
        client.start_weight_update()
        client.update_weights({"path": str(published.file), "sha256": published.digest})
        client.finish_weight_update(published.label)


class FromTrainer:
    """vLLM's own trainer side, in this process: broadcasts by NCCL, in a group with each server, or CUDA IPC handles.

    Args:
        timeout: seconds for an update.
    """

    environment: Mapping[str, str]

    def __init__(self, how: Literal["nccl", "ipc"], timeout: float) -> None:
        self.backend, self.timeout = how, timeout
        # By HTTP vLLM sends CUDA IPC handles as a pickle, which its server reads only where this is set.
        self.environment = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"} if how == "ipc" else {}
        self._engines: dict[str, tuple[Client, Any]] = {}
        self._published: Published | None = None

    def publish(self, label: str, weights: Weights, dtype: str) -> Published:
        named = Published(label, "", weights, dtype).named()
        sums = [(name, list(weight.shape), float(weight.double().sum())) for name, weight in named]
        digest = hashlib.sha256(to_json(sums).encode()).hexdigest()
        self._published = Published(label, digest, weights, dtype)
        return self._published

    def send(self, server: VllmServer, published: Published) -> None:
        self._published = published
        client, engine = within(self.timeout, lambda: self._engine(server), server)
        client.label = published.label
        try:
            within(self.timeout, engine.send_weights, server)
        except BaseException:
            self._engines.pop(server.url, None)  # its group is unusable
            raise

    def _engine(self, server: VllmServer) -> tuple[Client, Any]:
        if server.url not in self._engines:
            client = Client(server)
            if self.backend == "nccl":
                self._engines[server.url] = client, nccl_engine(client, self._source(), server.world_size)
            else:
                self._engines[server.url] = client, ipc_engine(client, self._source(), server.url, self.timeout)
        return self._engines[server.url]

    def _source(self) -> Any:
        from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

        named = lambda: self._published.named() if self._published else iter(())  # noqa: E731

        class LearnerWeights(WeightSource):
            def metadata(self) -> list[Any]:
                return [ParamMeta(name, weight.dtype, tuple(weight.shape)) for name, weight in named()]

            def __iter__(self) -> Iterator[tuple[str, Tensor]]:
                return iter(named())

        return LearnerWeights()


def nccl_engine(client: Client, source: Any, world_size: int) -> Any:
    """vLLM's trainer side by NCCL: this process is rank 0, the server's workers are the others."""
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    address, port = own_address(client.server.url)
    info = NCCLTrainerInitInfo(rank=0, master_address=address, master_port=port, world_size=world_size + 1)
    return WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)


def ipc_engine(client: Client, source: Any, url: str, timeout: float) -> Any:
    """vLLM's trainer side by CUDA IPC: learner and server on one GPU."""
    from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

    client.update_weights = HTTPVLLMWeightSyncClient(url, timeout).update_weights  # which encodes the handles
    return WeightTransferTrainerFactory.trainer_init(IPCTrainerInitInfo(rank=0), client=client, source=source)


def own_address(url: str) -> tuple[str, int]:
    """This machine's address as the server of ``url`` sees it, and a free port of it."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=10) as towards:
        address = towards.getsockname()[0]
    with socket.socket() as free:
        free.bind((address, 0))
        return address, free.getsockname()[1]


def within(seconds: float, what: Callable[[], Any], server: VllmServer) -> Any:
    """Do it in a thread that dies with the process: a collective whose other side is gone never returns."""
    from lyceum.engine._servers import ServerFailure

    result: list[Any] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            result.append(what())
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if error:
        if isinstance(error[0], ServerFailure):
            raise error[0]
        raise ServerFailure(server.url, f"its weights could not be sent: {error[0]}") from error[0]
    if not result:
        raise ServerFailure(server.url, f"did not take the weights within {seconds:g} s")
    return result[0]
