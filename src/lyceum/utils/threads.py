"""CPU threads: how many torch computes with, and how they wait for one another.

The number changes sums in their last bits, so it never depends on what else the machine is doing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lyceum.utils.lazy_imports import torch
from lyceum.utils.memory import CGROUPS as _CGROUPS
from lyceum.utils.memory import control_groups

VARIABLE = "OMP_NUM_THREADS"

MOST = 1024
"""Maximum number of threads that a run is told to compute with."""

SPINS = "2000"
"""Turns for which a thread of GNU's OpenMP spins before it sleeps (the library's own: 300 000, milliseconds).

Measured with the demo on two cores, time of two threads by that of one: beside four busy processes 1.05 with it, 1.2
without spinning, over 3.7 with the library's own; alone 0.95, 1.15 and 0.87."""


def usable_cores() -> int:
    """CPU cores that this process may use: in a container they can be fewer than the machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota() -> float | None:
    """Cores' worth of time that the process's control groups allow; None without a limit.

    Source: the kernel's documentation of control groups, cpu.max (version 2) and cpu.cfs_quota_us (version 1): the
    microseconds allowed in each period.
    """
    quotas: list[float] = []
    for folder in control_groups(_CGROUPS):
        # The root has none, and a container sees its own alone.
        with suppress(OSError, ValueError):
            allowed, period = (folder / "cpu.max").read_text().split()
            quotas += [] if allowed == "max" else [int(allowed) / int(period)]
    with suppress(OSError, ValueError):
        first = _CGROUPS / "cpu"
        allowed, period = (int((first / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        quotas += [allowed / period] if allowed > 0 else []
    return min(quotas, default=None)


def wait_passively() -> None:
    """Have threads that wait for one another give up their core soon: call before torch is imported.

    A thread that spins keeps the core from the one that it waits for. On a busy machine that costs many times the
    work itself; on an idle one threads meet again before they would sleep.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # GNU's library, torch's on Linux
        os.environ.setdefault("KMP_BLOCKTIME", "0")  # LLVM's and Intel's, in milliseconds


def chosen(setting: int | None, before: int | None = None) -> int:
    """Threads to compute with.

    Args:
        setting: what the user asked for.
        before: those of the run that is resumed.
    """
    if setting is not None:
        return setting
    now = torch.get_num_threads()  # has read the variable; or was set by who calls lyceum from Python
    if os.environ.get(VARIABLE):
        return now
    return min(now, usable_cores()) if before is None else min(before, MOST)


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Let torch compute with so many threads inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_words(threads: int) -> str:
    """``2 threads of 2 cores``, and what to do where others use them too."""
    cores = usable_cores()
    said = f"{threads} on {cores} core{'s' if cores > 1 else ''}"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if threads > 1 and load > cores:
        said += f"; others use them too (load {load:.0f}): threads=1 may be faster"
    return said
