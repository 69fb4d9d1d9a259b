"""The process of an engine's encoder: a vision tower, pictures' inputs in, their features out.

It talks to the process that started it alone, over the socket that it was given, and ends with it. The vision tower
comes as a configuration in JSON and weights in safetensors: nothing that is received is a program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from lyceum.engine._encoder import built, packed, put
from lyceum.models.sight import encoded
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.threads import wait_passively


def main() -> None:
    wait_passively()
    connection = Connection(int(sys.argv[1]))
    try:
        serve(connection)
    except (EOFError, ConnectionError):
        return


def serve(connection: Connection) -> None:
    from safetensors.torch import load

    torch.set_num_threads(json.loads(connection.recv_bytes()))
    inner = built(connection.recv_bytes(), connection.recv_bytes())
    connection.send_bytes(b"+")
    while True:
        what, content = connection.recv_bytes(), connection.recv_bytes()
        try:
            if what == b"weights":
                put(inner, load(content))
                reply = b""
            else:
                places: list[int] = json.loads(what)
                with torch.inference_mode():
                    reply = packed(encoded(inner, _inputs(load(content), len(places)), places))
        except Exception as error:
            connection.send_bytes(b"-" + f"{type(error).__name__}: {error}".encode()[:1000])
            continue
        connection.send_bytes(b"+" + reply)


def _inputs(tensors: Mapping[str, Tensor], n: int) -> Sequence[Mapping[str, Tensor]]:
    inputs: list[dict[str, Tensor]] = [{} for _ in range(n)]
    for name, x in tensors.items():
        of, _, argument = name.partition(".")
        inputs[int(of)][argument] = x
    return inputs
