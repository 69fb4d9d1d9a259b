"""Messages between a run and its workers: JSON, tensors and trees as bytes, never a pickle."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from lyceum.core.tree import Tree
from lyceum.run.codec import decode, encode

LONGEST = 1 << 36
"""Maximum bytes of a message."""
_LENGTHS = struct.Struct("<3Q")


class Message(NamedTuple):
    """What was sent.

    Attributes:
        said: plain values and tensors.
        trees: whole, in order.
    """

    said: dict[str, Any]
    trees: list[Tree]


@dataclass(frozen=True)
class Part:
    """A worker's part of a wave."""

    trees: list[Tree]
    computed: int
    state: dict[str, Any]
    counted: dict[str, float] = field(default_factory=dict)
    """As ``Grown.counted``."""


def say_grown(parts: Mapping[int, Part]) -> tuple[dict[str, Any], list[Tree]]:
    """What a worker has finished, by wave, as a message that :func:`grown_parts` reads."""
    said = [{"wave": wave, **vars(part), "trees": len(part.trees)} for wave, part in parts.items()]
    return {"what": "grown", "parts": said}, [tree for part in parts.values() for tree in part.trees]


def grown_parts(said: Mapping[str, Any], trees: Sequence[Tree]) -> dict[int, Part]:
    remaining = iter(trees)
    return {
        part["wave"]: Part([*islice(remaining, part["trees"])], part["computed"], part["state"], part["counted"])
        for part in said["parts"]
    }


def pack(said: Mapping[str, Any], trees: Sequence[Tree] = ()) -> bytes:
    """
    Raises:
        TypeError: a value that could not be restored exactly; the message names its key.
    """
    from safetensors.torch import save

    from lyceum.run.trees import pack_trees  # here: imports pyarrow

    # Guides read the entropies of what was drawn, which files of trees do not hold.
    entropy = [[list(node.entropy) for node in tree.nodes()] for tree in trees]
    text, tensors = encode({"said": said, "entropy": entropy})
    parts = [
        text.encode(),
        save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}) if tensors else b"",
        pack_trees(trees),
    ]
    return b"".join([_LENGTHS.pack(*map(len, parts)), *parts])


def unpack(content: bytes) -> Message:
    """
    Raises:
        ValueError: it is no message of :func:`pack`.
    """
    from safetensors.torch import load

    from lyceum.run.trees import unpack_trees  # here: imports pyarrow

    if len(content) < _LENGTHS.size:
        raise ValueError("a message of a worker is cut off")
    lengths = _LENGTHS.unpack_from(content)
    if sum(lengths) != len(content) - _LENGTHS.size:
        raise ValueError("a message of a worker is cut off, or longer than it says")
    parts: list[bytes] = []
    start = _LENGTHS.size
    for length in lengths:
        parts.append(content[start : start + length])
        start += length
    tensors = load(parts[1]) if parts[1] else {}
    told, trees = decode(parts[0], tensors), unpack_trees(parts[2])
    for tree, of_nodes in zip(trees, told["entropy"], strict=True):
        for node, entropy in zip(tree.nodes(), of_nodes, strict=True):
            node.entropy = entropy
    return Message(told["said"], trees)


def receive(connection: Connection) -> Message:
    """
    Raises:
        EOFError, OSError: the other side has ended.
    """
    return unpack(connection.recv_bytes(LONGEST))
