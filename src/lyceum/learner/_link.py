"""The processes that train together: the first one gives orders, all of them compute.

Messages are JSON and safetensors (the codec of checkpoints), never pickle. torch's variables say who is who (``RANK``,
``WORLD_SIZE``, ``MASTER_ADDR``, ...), as ``torchrun`` or ``lyceum train --nproc`` sets them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

from lyceum.run.codec import decode, encode
from lyceum.utils.errors import RunError
from lyceum.utils.lazy_imports import Tensor, torch

WAIT = timedelta(minutes=10)
"""Limit on waiting for another process within a step; loading a model is the longest of it."""
IDLE = timedelta(days=365)
"""Limit on waiting for the next order, while the first process samples. One that has ended is noticed at once."""


class Lost(RunError):
    """Another of the processes has ended, or does not answer."""


class Link:
    """This process's connection to the others; the only one of the process.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
    """

    def __init__(self) -> None:
        from torch import distributed

        self.distributed: Any = distributed
        cuda = torch.cuda.is_available()
        if not distributed.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
            if process_count() > 1:
                distributed.init_process_group(backend, timeout=WAIT)
            else:
                store = distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
                distributed.init_process_group(backend, store=store, rank=0, world_size=1)
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        if cuda and self.size > 1:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        self._messages = distributed.new_group(backend="gloo", timeout=WAIT)
        self._orders = distributed.new_group(backend="gloo", timeout=IDLE)

    def mesh(self, device: str) -> Any:
        """All processes in a row, for FSDP2."""
        return self.distributed.device_mesh.init_device_mesh(device, (self.size,))

    def order(self, order: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The first process's next order, in all processes.

        Args:
            order: given by the first process alone: what a checkpoint may hold.
        """
        if self.size == 1:
            assert order is not None
            return dict(order)
        packed = _packed(order) if order is not None else torch.empty(0, dtype=torch.uint8)
        length = torch.tensor([len(packed)])
        with self._watched():
            self.distributed.broadcast(length, 0, group=self._orders)
            packed = packed if self.rank == 0 else torch.empty(int(length), dtype=torch.uint8)
            self.distributed.broadcast(packed, 0, group=self._messages)
        return dict(order) if order is not None else _unpacked(packed)

    def collect(self, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Every process's message, in order; in the first process, the others get none."""
        if self.rank:
            packed = _packed(message)
            with self._watched():
                self.distributed.send(torch.tensor([len(packed)]), 0, group=self._messages)
                self.distributed.send(packed, 0, group=self._messages)
            return []
        return [message, *(self._received(rank) for rank in range(1, self.size))]

    def _received(self, rank: int) -> dict[str, Any]:
        length = torch.zeros(1, dtype=torch.long)
        with self._watched():
            self.distributed.recv(length, rank, group=self._messages)
            packed = torch.empty(int(length), dtype=torch.uint8)
            self.distributed.recv(packed, rank, group=self._messages)
        return _unpacked(packed)

    def spread(self, tensor: Tensor) -> Tensor:
        """The first process's tensor on the CPU, in all; the others give one of its shape and dtype."""
        found = tensor.detach().cpu().contiguous() if self.rank == 0 else torch.empty_like(tensor, device="cpu")
        if self.size > 1:
            with self._watched():
                self.distributed.broadcast(found, 0, group=self._messages)
        return found

    def numbers(self, number: Tensor) -> Tensor:
        """A number of each process."""
        found = [torch.zeros((), device="cpu") for _ in range(self.size)]
        with self._watched():
            self.distributed.all_gather(found, number.detach().float().cpu(), group=self._messages)
        return torch.stack(found)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            cause = str(error).splitlines()[0]
            raise Lost(f"process {self.rank} of {self.size} lost another one: {cause}") from error


def dismiss() -> None:
    """Let the other processes end; where nothing was trained they still wait for the first order."""
    if process_count() > 1:
        link().order({"do": "stop"})


def close() -> None:
    """Take the connection down, if there is one."""
    if link.cache_info().currsize:
        found = link()
        link.cache_clear()
        found.distributed.destroy_process_group()


def process_count() -> int:
    """Number of processes that this one was started among."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def process_number() -> int:
    """Number of this process among them, from 0."""
    return int(os.environ["RANK"]) if process_count() > 1 else 0


@cache
def link() -> Link:
    """The connection, made when it is first asked for: waits until every process has."""
    return Link()


def _packed(message: Mapping[str, Any]) -> Tensor:
    import safetensors.torch

    text, tensors = encode(message)
    # Parts of one storage, which a tensor file cannot hold, become tensors of their own.
    own = {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in tensors.items()}
    return torch.frombuffer(bytearray(safetensors.torch.save(own, {"message": text})), dtype=torch.uint8)


def _unpacked(packed: Tensor) -> dict[str, Any]:
    import json

    import safetensors.torch

    content = packed.numpy().tobytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return decode(header["__metadata__"]["message"], safetensors.torch.load(content))
