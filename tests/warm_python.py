"""Python programs in processes of their own, forked from one that has imported what they import.

A start of Python with torch and lyceum takes six seconds of CPU, a fork some milliseconds. ``python warm_python.py`` is
the process that is forked: a packet for each program, with where its output goes, and one for its end.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

_IMPORTED = (
    "lyceum.api",
    "lyceum.cli.app",
    "lyceum.run.rollout_table",
    "lyceum.training.train",
    "lyceum.training.view.report",
    "pandas",
    "peft",
    "pyarrow.parquet",
    "transformers.models.llama.modeling_llama",
)
_MOST = 1 << 16
"""Bytes of a packet."""


class WarmPython:
    """The process that is forked; it ends with this one."""

    def __init__(self) -> None:
        self.channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-u", __file__, str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
            )
        atexit.register(self.end)

    @contextlib.contextmanager
    def running(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[int, TextIO]]:
        """A script with its arguments: its process, which leads a group, and what it prints. After it the group is
        killed."""
        read, write = os.pipe()
        request = {"command": command, "folder": str(folder), "environment": dict(environment)}
        socket.send_fds(self.channel, [json.dumps(request).encode()], [write])
        os.close(write)
        with open(read, encoding="utf-8", errors="replace") as said:
            reply = self.channel.recv(_MOST)
            assert reply, f"the process that is forked has ended: {self.process.wait()}"
            try:
                yield int(reply), said
            finally:
                self.channel.send(b"end")
                self.channel.recv(_MOST)

    def end(self) -> None:
        self.channel.close()
        self.process.wait()


def main(channel: socket.socket) -> None:
    for module in _IMPORTED:
        importlib.import_module(module)
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # a program's own collections would walk, and copy, what it shares with this process
    while True:
        packet, descriptors, _, _ = socket.recv_fds(channel, _MOST, 1)
        if not packet:
            return
        child = os.fork()
        if child == 0:
            channel.close()
            _run(json.loads(packet), *descriptors)
        os.close(*descriptors)
        channel.send(str(child).encode())
        channel.recv(_MOST)  # its end, or that of the process that asked
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        channel.send(b"ended")


def _run(request: dict, output: int) -> None:
    """In the child: never returns."""
    code = 1
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.chdir(request["folder"])
        os.environ |= request["environment"]
        sys.argv = request["command"]
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
