"""Features of pictures for an engine: each picture through the vision tower once, here or in a process of its own.

Which pictures are encoded together follows from the order of the requests and from what is needed when, never from the
clock, so that both ways give the same bits: in the order in which requests show them, ``at_once`` of them, or fewer
where one is needed before there are as many.

With a process of its own (InternVL3.5's decoupled deployment of vision and language, arXiv:2508.18265) the pictures of
requests that wait are encoded while others are prefilled and decoded. What is prefilled together is the same as
without it: where that needs features that are not there yet, the engine waits.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import socket
import subprocess
import tempfile
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO, Any, NoReturn

from pydantic import Field

from lyceum.core.component import Settings
from lyceum.models.sight import TEXT_MODELS, Features, Sight, inputs_alike
from lyceum.utils.child_processes import import_path, lines_said, start_module, wait_or_kill
from lyceum.utils.errors import EncoderLost, RecipeError
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import printable

ENTRY = "lyceum.engine._encoder_process"
LOADING = 300.0
"""Seconds that it may take to import what it needs and to take the vision tower."""
GRACE = 5.0


class EncoderSettings(Settings):
    """How pictures go through the vision tower in generation."""

    process: bool = False
    """Whether in a process of its own, ahead of the requests that wait, while others are prefilled and decoded. On a
    CPU, with the same number of threads; it pays where ``prefill_tokens`` lets several prefills follow one another."""
    at_once: int = Field(32, ge=1)
    """Maximum pictures encoded together, in the order of their requests; or of their prompts, where a router chooses
    their rates."""
    ahead: int = Field(128, ge=1)
    """Maximum pictures that the process encodes before a request needs one of them."""
    hold: int = Field(1024, ge=1)
    """Maximum pictures whose features are kept until the weights change; beyond, one is encoded again."""
    seconds: float = Field(120.0, gt=0)
    """Maximum time that the process may take for pictures encoded together; it is then ended, and so is the run."""


@dataclass(eq=False)
class EncodedTogether:
    """Pictures that are encoded together."""

    ids: Sequence[int]
    features: Future[list[Features]] | None = None


class PictureFeatures:
    """What an engine's pictures are to the text model, under the current weights.

    Raises:
        RecipeError: a process is asked for, and the model's pictures cannot be encoded in one.
    """

    def __init__(self, sight: Sight, settings: EncoderSettings) -> None:
        self._sight, self._settings = sight, settings
        sight.at_once = settings.at_once
        self._held: OrderedDict[int, Features] = OrderedDict()
        self._digest = b""  # of the weights that these are of, in a process
        self._forget_groups()
        if settings.process:
            _check(sight)
            self.forget()  # the process may be of an engine before this one

    @property
    def _process(self) -> EncoderProcess | None:
        """The one that all engines of a model have in common: evaluation builds its own. Begun when first needed."""
        return _PROCESSES.get(self._sight)

    def _begun(self) -> EncoderProcess:
        process = self._process
        if process is None or process.lost is not None or process.seconds != self._settings.seconds:
            _PROCESSES[self._sight] = process = EncoderProcess(self._sight, self._settings.seconds)
        return process

    def __iter__(self) -> Iterator[int]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def _forget_groups(self) -> None:
        self._open: list[int] = []  # the last pictures, fewer than a group
        self._waiting: deque[EncodedTogether] = deque()  # whole groups, not given to the process yet
        self._of: dict[int, EncodedTogether] = {}
        self._given = 0  # pictures that the process has encoded, or will, and no request has needed yet

    def expect(self, ids: Sequence[int]) -> None:
        """Name pictures that a request will need."""
        for id in ids:
            if id not in self._held and id not in self._of and id not in self._open:
                self._open.append(id)
                if len(self._open) == self._settings.at_once:
                    self._close()
        self._give()

    def of(self, ids: Sequence[int]) -> list[Features]:
        """The features of pictures that some prompt has shown.

        Raises:
            EncoderLost: the process gave none.
        """
        self.expect(ids)
        for id in ids:
            if id not in self._held:
                if id in self._open:
                    self._close()
                self._take(self._of[id])
            self._held.move_to_end(id)
        found = [self._held[id] for id in ids]
        while len(self._held) > self._settings.hold:
            self._held.popitem(last=False)
        self._give()
        return found

    def forget(self) -> None:
        """Drop what was computed from weights that have changed; the process sees for itself whether they have."""
        process = self._process if self._settings.process else None
        if process is not None:
            process.renew(self._sight)
        if process is None or process.digest != self._digest:
            self._held.clear()
            self._forget_groups()

    def _close(self) -> None:
        group = EncodedTogether(self._open)
        self._open = []
        self._waiting.append(group)
        self._of |= dict.fromkeys(group.ids, group)

    def _give(self) -> None:
        """Keep the process at work, within its limit."""
        while self._settings.process and self._waiting:
            if self._given and self._given + len(self._waiting[0].ids) > self._settings.ahead:
                return
            self._start(self._waiting.popleft())

    def _start(self, group: EncodedTogether) -> None:
        self._given += len(group.ids)
        process = self._begun()
        self._digest = process.digest
        group.features = process.encode(self._sight, group.ids)

    def _take(self, group: EncodedTogether) -> None:
        """Wait for a group's features, or compute them."""
        if group in self._waiting:
            self._waiting.remove(group)
            if self._settings.process:
                self._start(group)
        if group.features is None:
            found = self._sight.encode(group.ids)
        else:
            found = group.features.result()
            self._given -= len(group.ids)
            self._sight.encoded += len(group.ids)
            self._sight.encoded_apart += len(group.ids)
        self._held.update(zip(group.ids, found, strict=True))
        for id in group.ids:
            del self._of[id]


def _check(sight: Sight) -> None:
    device = next(iter(sight.parameters())).device
    if device.type != "cpu":
        raise RecipeError(f"engine.encoder.process: got true for a model on {device}; allowed: false, or a CPU")
    if sight.rates is not None:
        raise RecipeError(
            "engine.encoder.process: got true, but the pictures of this model have two rates, and its router sees each "
            "in this process before it is shown; allowed: false"
        )


class EncoderProcess:
    """``lyceum.engine._encoder_process``: pictures in, features out, in order; it ends when this process does.

    Pictures travel over a pair of sockets that nobody else has.

    Args:
        sight: whose tower it gets, with its weights.
        seconds: for each exchange.
    """

    def __init__(self, sight: Sight, seconds: float) -> None:
        self.seconds = seconds
        self.lost: EncoderLost | None = None
        """Why it has ended."""
        ours, theirs = socket.socketpair()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = start_module(ENTRY, theirs, self._said, path=import_path())
        self._connection = Connection(ours.detach())
        self._thread = ThreadPoolExecutor(1, "lyceum-encoder")
        self._close = weakref.finalize(self, _end, self._connection, self._child)
        threads = to_json(torch.get_num_threads()).encode()
        self.digest = _weights(sight)[1]
        """Of the weights that it has."""
        self._thread.submit(_exchange, weakref.ref(self), [threads, *tower(sight)], LOADING)

    @property
    def pid(self) -> int:
        return self._child.pid

    def renew(self, sight: Sight) -> None:
        """Give it the current weights, where they are others than it has."""
        content, digest = _weights(sight)
        if digest != self.digest:
            self.digest = digest
            self._thread.submit(_exchange, weakref.ref(self), [b"weights", content], self.seconds)

    def encode(self, sight: Sight, ids: Sequence[int]) -> Future[list[Features]]:
        from safetensors.torch import save

        all_seen = [sight.pictures.seen(id) for id in ids]
        messages: list[bytes] = []
        order: list[int] = []
        for group in inputs_alike(all_seen, sight.takes):
            order += [seen.picture.id for seen in group]
            tensors = {f"{n}.{name}": x for n, seen in enumerate(group) for name, x in seen.inputs.items()}
            kept = {name: x.contiguous() for name, x in tensors.items() if name.partition(".")[2] in sight.takes}
            messages += [to_json([seen.places for seen in group]).encode(), save(kept)]
        return self._thread.submit(_features, weakref.ref(self), messages, order, list(ids))

    def exchange(self, messages: Sequence[bytes], seconds: float) -> bytes:
        """Send parts of one request, and return the reply.

        Raises:
            EncoderLost: there is none; the process has been ended.
        """
        late = threading.Event()
        watch = threading.Timer(min(seconds, threading.TIMEOUT_MAX), lambda: (late.set(), self._child.kill()))
        watch.daemon = True
        watch.start()
        try:
            for message in messages:
                self._connection.send_bytes(message)
            reply = self._connection.recv_bytes()
        except (EOFError, OSError):
            if late.is_set():
                key = " (engine.encoder.seconds)" if seconds == self.seconds else ""
                self._lose(f"did not answer within {seconds:g} seconds{key}")
            self._lose(f"ended with status {self._status()}")
        finally:
            watch.cancel()
        if reply[:1] != b"+":
            self._lose(f"failed: {printable(reply[1:].decode(errors='replace'))}")
        return reply[1:]

    def _status(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(GRACE)
        return self._child.returncode

    def _lose(self, how: str) -> NoReturn:
        self._child.kill()
        self._close()
        last = lines_said(self._said)[-5:]
        self.lost = EncoderLost([f"engine.encoder: its process {how}", *map(printable, last)])
        raise self.lost


_PROCESSES: weakref.WeakKeyDictionary[Sight, EncoderProcess] = weakref.WeakKeyDictionary()


# The thread that talks to the process must not keep it: hence weak references.


def _exchange(process: weakref.ref[EncoderProcess], messages: Sequence[bytes], seconds: float) -> bytes:
    alive = process()
    if alive is None:
        raise EncoderLost("engine.encoder: its model is gone")
    if alive.lost is not None:
        raise alive.lost
    return alive.exchange(messages, seconds)


def _features(
    process: weakref.ref[EncoderProcess], messages: Sequence[bytes], order: Sequence[int], ids: Sequence[int]
) -> list[Features]:
    """Features of pictures, of which those of one shape were sent together.

    Args:
        messages: two for each shape: how many tokens each picture takes, and its inputs.
        order: the pictures as they were sent.
        ids: as they are returned.
    """
    alive = process()
    seconds = math.inf if alive is None else alive.seconds
    del alive
    found: list[Features] = []
    for at in range(0, len(messages), 2):
        found += unpacked(_exchange(process, messages[at : at + 2], seconds))
    of = dict(zip(order, found, strict=True))
    return [of[id] for id in ids]


def packed(features: Sequence[Features]) -> bytes:
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    for n, each in enumerate(features):
        tensors |= {f"{n}.{level}": x.contiguous().clone() for level, x in enumerate((each.embedding, *each.levels))}
    return save(tensors)


def unpacked(content: bytes) -> list[Features]:
    from safetensors.torch import load

    levels: dict[int, dict[int, Tensor]] = {}
    for name, x in load(content).items():
        n, _, level = name.partition(".")
        levels.setdefault(int(n), {})[int(level)] = x
    return [Features(levels[n][0], tuple(levels[n][k] for k in range(1, len(levels[n])))) for n in range(len(levels))]


def _bare(sight: Sight) -> Any:
    """A model that sees without its text model; the modules are the model's own."""
    bare = copy.copy(sight.inner)
    bare._modules = {name: each for name, each in sight.inner._modules.items() if each is not sight.text}
    return bare


def tower(sight: Sight) -> list[bytes]:
    """What the process builds the vision tower of: its model's configuration, and the weights."""
    return [sight.inner.config.to_json_string(use_diff=False).encode(), _weights(sight)[0]]


def built(config: bytes, weights: bytes) -> Any:
    """A model that sees without its text model, as :func:`tower` has it."""
    from safetensors.torch import load
    from transformers import AutoConfig, AutoModel

    from lyceum.utils.library_messages import quiet

    settings = AutoConfig.for_model(**json.loads(config))
    with quiet(), torch.device("meta"):
        inner: Any = AutoModel.from_config(settings, attn_implementation="sdpa").eval()
    for name in TEXT_MODELS:
        inner._modules.pop(name, None)
    put(inner, load(weights))
    return inner


def put(inner: Any, weights: Mapping[str, Tensor]) -> None:
    """Put weights and buffers in their places.

    Raises:
        ValueError: they are not all that there are.
    """
    if weights.keys() != _tensors(inner).keys():
        raise ValueError(
            f"weights of another model: {', '.join(sorted(weights.keys() ^ _tensors(inner).keys()))[:500]}"
        )
    for name, x in weights.items():
        path, _, last = name.rpartition(".")
        owner = inner.get_submodule(path)
        if last in owner._parameters:
            owner._parameters[last] = torch.nn.Parameter(x, requires_grad=False)
        else:
            owner._buffers[last] = x


def _tensors(module: Any) -> dict[str, Tensor]:
    """Weights and buffers, also those that no file of a model has."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _weights(sight: Sight) -> tuple[bytes, bytes]:
    """The weights that features depend on, and what tells them from others."""
    from safetensors.torch import save

    content = save({name: x.detach().contiguous() for name, x in _tensors(_bare(sight)).items()})
    return content, hashlib.blake2b(content, digest_size=16).digest()


def _end(connection: Connection, child: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        connection.close()
    wait_or_kill(child, GRACE)
