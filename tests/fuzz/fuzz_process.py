"""lyceum's commands in processes of their own, within limits of time and memory, forked from one that is warm.

A start of Python with torch takes six seconds, a fork a few milliseconds. ``python fuzz_process.py`` is the process
that is forked: a line of JSON for each request, and one for its reply.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = float(os.environ.get("FUZZ_PATIENCE", "1"))
"""How many times as long a command may take, on a machine that is busy."""
INTERRUPT_SECONDS = 15.0 * PATIENCE
"""After which a command that still runs is sent Ctrl-C, and five seconds later again."""
END_SECONDS = 45.0 * PATIENCE
"""After which one that still runs is ended, and has failed: nothing may wait beyond two Ctrl-C."""
MEMORY_BYTES = 6 << 30
"""Of address space, which torch alone takes a good part of."""
OUTPUT_BYTES = 64 << 20
"""Of any file that a command writes."""

_IMPORTED = (
    "lyceum.api",
    "lyceum.cli.app",
    "lyceum.analysis.comparison.run",
    "lyceum.analysis.hints.write",
    "lyceum.analysis.test_time.plan",
    "lyceum.run.rollout_table",
    "lyceum.training.view.report",
    "datasets",
    "peft",
    "pyarrow.parquet",
    "reasoning_gym",
    "tensorboard.compat.proto.event_pb2",
    "tensorboard.summary.writer.event_file_writer",
    "transformers.models.llama.modeling_llama",
)


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: exit code; negative the signal that ended it.
        seconds: that it took.
        interrupts: Ctrl-C that it was sent.
        killed: it did not end in time and was ended.
        left: processes that it left behind.
    """

    code: int
    seconds: float
    out: str
    err: str
    interrupts: int
    killed: bool
    left: int


class Commands:
    """Runs commands; a context manager, since the process that is forked ends with it."""

    def __enter__(self) -> Commands:
        source = Path(__file__).parents[2] / "src"
        path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
        self.home = tempfile.TemporaryDirectory(prefix="fuzz-home-")
        home = dict.fromkeys(("HOME", "HF_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR"), self.home.name)
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_UPDATE_DOWNLOAD_COUNTS": "0"}
        quiet = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "COLUMNS": "100", "PYTHONPATH": path}
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **home, **offline, **quiet},
        )
        self.number = 0
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.home.cleanup()

    def run(self, argv: list[str], folder: Path) -> Ended:
        """``lyceum ARGV`` in a folder; its temporary files go to ``folder.tmp`` beside it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.number += 1
        temporary = folder.with_name(f"{folder.name}.tmp")
        temporary.mkdir(exist_ok=True)
        marker = f"{os.getpid()}-{self.number}"
        request = {"argv": argv, "folder": str(folder), "temporary": str(temporary), "marker": marker}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return Ended(**json.loads(self.process.stdout.readline()))


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for module in _IMPORTED:
        importlib.import_module(module)
    import torch

    from lyceum.core.component import kinds
    from lyceum.core.paper_folders import SLOTS

    torch.set_num_threads(1)
    for slot in SLOTS:
        kinds(slot)
    gc.freeze()  # a command's own collections would walk, and copy, what it shares with this process
    for line in sys.stdin:
        replies.write(json.dumps(vars(_one(json.loads(line)))) + "\n")
        replies.flush()


def _one(request: dict[str, Any]) -> Ended:
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _command(request, out.fileno(), err.fileno())
        status, interrupts, killed = _wait(child, began)
        left = _end_those_left(request["marker"])
        return Ended(
            os.waitstatus_to_exitcode(status),
            round(time.monotonic() - began, 2),
            _text(out),
            _text(err),
            interrupts,
            killed,
            left,
        )


def _command(request: dict[str, Any], out: int, err: int) -> None:
    """In the child: never returns."""
    code = 70
    try:
        os.setsid()
        os.chdir(request["folder"])
        os.environ |= {"TMPDIR": request["temporary"], "LYCEUM_FUZZ": request["marker"]}
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        from lyceum.cli import main as lyceum

        sys.argv = ["lyceum", *request["argv"]]
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - until the process ends
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        code = lyceum()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        # As the interpreter does on exit, and not more: an endless thread must not keep the process.
        with contextlib.suppress(BaseException):
            import atexit

            atexit._run_exitfuncs()
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int, began: float) -> tuple[int, int, bool]:
    """Its status, how often it was sent Ctrl-C, and whether it had to be ended."""
    interrupts, pause = 0, 0.002
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status, interrupts, False
        seconds = time.monotonic() - began
        if seconds > END_SECONDS:
            os.killpg(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1], interrupts, True
        if seconds > INTERRUPT_SECONDS + 5 * interrupts and interrupts < 2:
            interrupts += 1
            os.kill(child, signal.SIGINT)
        time.sleep(pause)
        pause = min(0.05, pause * 1.2)


def _end_those_left(marker: str) -> int:
    """How many processes of a command live on two seconds after it; they are ended."""
    mark = f"LYCEUM_FUZZ={marker}".encode()
    for _ in range(20):
        if not _marked(mark):
            return 0
        time.sleep(0.1)
    left = _marked(mark)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _marked(mark: bytes) -> list[int]:
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
    return found


def _text(file: Any) -> str:
    file.seek(0)
    return file.read(2_000_000).decode("utf-8", "replace")


if __name__ == "__main__":
    main()
