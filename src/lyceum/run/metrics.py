"""Metrics of each step: a line of metrics.jsonl and a point on each curve."""

from __future__ import annotations

import errno
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lyceum.run.trackers import Curves
from lyceum.utils.atomic_files import DAMAGED, FULL, atomic_write, full_disk
from lyceum.utils.numbers import figure, finite_line, to_json


class Metrics:
    """Appends to a run's metrics.jsonl and to its curves. Steps increase from line to line.

    Attributes:
        last_step: step of the last line, None before the first.
        lines: number of lines.
    """

    def __init__(self, run: Path, curves: Sequence[Curves] = ()) -> None:
        self.file = run / "metrics.jsonl"
        self.last_step: int | None = None
        self.lines = 0
        self._curves = curves
        self._open: Any = None
        self._gone_back = False

    def append(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line. JSON has no nan: such a metric is null, and ``NAME/nonfinite`` says nan, inf or -inf."""
        if self.last_step is not None and step <= self.last_step:
            raise ValueError(f"record: got step {step} after step {self.last_step}; allowed: increasing steps")
        line = {name: figure(name, given) for name, given in metrics.items()}
        self._write(to_json({"step": step, **finite_line(line)}) + "\n")
        numbers = {name: v for name, v in line.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        for curves in self._curves:
            curves.draw(step, numbers, gone_back=self._gone_back)
        self._gone_back = False
        self.last_step = step
        self.lines += 1

    def flush(self) -> None:
        """Wait until the disk has every line."""
        if self._open is not None:
            os.fsync(self._open.fileno())
        for curves in self._curves:
            curves.flush()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        for curves in self._curves:
            curves.close()
        self._open = None

    def go_back(self, last_step: int | None, lines: int) -> None:
        """Drop everything after a step, as if nothing had come after it.

        Where the file does not begin with ``lines`` lines up to that step, it was damaged: each step's first complete
        line is kept, the damaged file is kept beside it under another name, and a warning says what was found.
        """
        last = -math.inf if last_step is None else last_step
        found = self.file.read_bytes().splitlines(keepends=True) if self.file.exists() else []
        kept = [line for line in found if _step_of(line) <= last]
        steps = [_step_of(line) for line in kept]
        if kept != found[:lines] or len(kept) != lines or steps != sorted(set(steps)):
            kept = self._mended(found, kept, last_step, lines)
        if kept != found:
            atomic_write(self.file, b"".join(kept))
        self.last_step, self.lines, self._gone_back = last_step, len(kept), True

    def _mended(self, found: list[bytes], kept: list[bytes], last_step: int | None, lines: int) -> list[bytes]:
        first: dict[float, bytes] = {}
        for line in kept:
            first.setdefault(_step_of(line), line)
        said = f"{self.file}: damaged: {len(first)} lines up to step {last_step}, {lines} were written"
        if len(kept) > len(first):
            said += f", {len(kept) - len(first)} were duplicates"
        if found:
            aside = self.file.with_name(self.file.name + DAMAGED)
            atomic_write(aside, b"".join(found))
            said += f"; the run goes on with these, the file as it was is {aside.name}"
        warnings.warn(said, stacklevel=4)
        return [first[step] for step in sorted(first)]

    def _write(self, line: str) -> None:
        try:
            if self._open is None:
                self._open = open(self.file, "ab", buffering=0)  # noqa: SIM115 - held until close()
            if self._open.write(line.encode()) < len(line.encode()):
                raise OSError(errno.ENOSPC, "written in part")
        except OSError as error:
            said = full_disk(self.file.parent) if error.errno in FULL else error.strerror
            raise OSError(error.errno, said, str(self.file)) from error


def _step_of(line: bytes) -> float:
    """The step of a line; infinite where the line is incomplete or not ours."""
    try:
        step = json.loads(line)["step"] if line.endswith(b"\n") else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return math.inf
    return step if isinstance(step, int) and not isinstance(step, bool) else math.inf
